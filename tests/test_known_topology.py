from collections import Counter

from benchmarks.known_topology import human, of_console, of_lscpu, of_xml
from benchmarks.topology_columns import cache_problem, wrong
from schema.host import Cache

LSCPU = """\
CPU(s):                  6
On-line CPU(s) list:     0-4
Model name:              Cortex-A510
Thread(s) per core:      1
Core(s) per socket:      3
Socket(s):               1
Model name:              Cortex-X3
Thread(s) per core:      1
Core(s) per socket:      2
Socket(s):               1
L1d cache:               544 KiB (5 instances)
L2 cache:                1.3 MiB (2 instances)
L3 cache:                8 MiB (1 instance)
NUMA node(s):            1

# The following is the parsable format, which can be fed to other
# programs. Each different item in every column has an unique ID
# starting usually from zero.
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,0,0,,0,0,0,0
1,1,0,0,,1,1,1,0
2,2,0,0,,2,2,1,0
3,0,0,0,,3,3,2,0
4,1,0,0,,4,4,3,0

# The following is the parsable format, which can be fed to other
# CPU,Core,Socket,Node,,L1d,L1i,L2,L3
0,0,7,0,,0,0,0,0
"""
CONSOLE = """\
Machine (P#0 total=31GiB DMIProductName="HP L#5 (size=9KiB)")
  Package L#0 (P#0 total=31GiB CPUModel="13th Gen Intel(R) Core(TM) i7-1370P" CPUStepping=2)
    NUMANode L#0 (P#0 local=31GiB total=31GiB)
    L3Cache L#0 (P#0 size=24MiB linesize=64 ways=12)
      L2Cache L#0 (P#0 size=1280KiB linesize=64 ways=10)
        L1dCache L#0 (P#0 size=48KiB linesize=64 ways=12)
          Core L#0 (P#0)
            PU L#0 (P#0)
            PU L#1 (P#1)
      L2Cache L#1 (P#6 size=2048KiB linesize=64 ways=16)
        L1dCache L#1 (P#24 size=32KiB linesize=64 ways=8)
          Core L#1 (P#24)
            PU L#2 (P#12)
    HostBridge L#0 (buses=0000:[17-1e])
      OSDev[Network] L#8 (Address=ac:1f:6b:8a:5f:c8) "enp96s0f0"
depth 0:           1 Machine (type #0)
CPU kind #0 efficiency 0 cpuset 0x00001000
  FrequencyMaxMHz = 3900
CPU kind #1 efficiency 1 cpuset 0x00000003
"""
XML = """\
<topology version="3.0"><object type="Machine"><object type="Package">
<object type="NUMANode" os_index="0"/><object type="MemCache" cache_size="1073741824" depth="1" cache_type="0"/>
<object type="L3Cache" cache_size="8388608" depth="3" cache_type="0">
<object type="L1Cache" cache_size="65536" depth="1" cache_type="1">
<object type="L1iCache" cache_size="65536" depth="1" cache_type="2"><object type="Core" os_index="0">
<object type="PU" os_index="5"/><object type="PU" os_index="6"/></object></object></object></object></object></object>
<cpukind cpuset="0x00000060"/></topology>
"""


def test_lscpu_counts_cores_of_each_type_from_zero_and_we_add_them() -> None:
    known = of_lscpu(LSCPU)

    assert (known.cpus, known.cores, known.sockets, known.threads, known.nodes) == (5, 5, 1, 1, 1)
    assert known.core_types == (2, 3)
    assert known.shown == {0, 1, 2, 3, 4}


def test_lscpus_cache_sums_are_as_exact_as_it_writes_them() -> None:
    known = of_lscpu(LSCPU)
    caches = (
        Cache(level=1, kind="data", size_bytes=(544 << 10) // 5, instances=5),
        Cache(level=2, kind="unified", size_bytes=640 << 10, instances=2),
        Cache(level=3, kind="unified", size_bytes=8 << 20, instances=1),
    )

    assert cache_problem(known, caches) is None
    assert cache_problem(known, caches[:2]) is not None


def test_lstopo_lists_one_object_a_line() -> None:
    known = of_console("EXPECTED.lstopo.console", CONSOLE, "")

    assert (known.cpus, known.cores, known.sockets, known.threads, known.nodes) == (3, 2, 1, 2, 1)
    assert known.core_types == (1, 2)
    assert known.caches == Counter(
        {("L3", "24MiB"): 1, ("L2", "1280KiB"): 1, ("L2", "2048KiB"): 1, ("L1d", "48KiB"): 1, ("L1d", "32KiB"): 1}
    )
    assert known.shown == {0, 1, 12}
    assert not known.merged
    assert of_console("a", CONSOLE, "options: --merge").merged


def test_lstopos_xml_says_the_same() -> None:
    known = of_xml("EXPECTED.lstopo.xml", XML, "")

    assert (known.cpus, known.cores, known.sockets, known.threads, known.nodes) == (2, 1, 1, 2, 1)
    assert known.caches == Counter(
        {("L3", "8192KiB"): 1, ("L1d", "64KiB"): 1, ("L1i", "64KiB"): 1, ("Mem", "1024MiB"): 1}
    )
    assert known.core_types == (2,)


def test_sizes_are_rounded_as_lstopo_does() -> None:
    assert [human(size << 10) for size in (32, 10239, 28160, 96 << 20)] == ["32KiB", "10239KiB", "28MiB", "96GiB"]


def test_what_is_not_known_is_not_wrong_and_what_we_lack_is() -> None:
    known = of_console("a", "Machine (P#0)\n  Core L#0\n    PU L#0 (P#0)\n", "")
    values = {"CPUs": 1, "types": (1,), "sockets": 4, "cores": None, "threads": 1, "nodes": 3, "caches": ()}

    assert wrong(known, values) == {"cores": "1"}
