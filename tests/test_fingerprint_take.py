import dataclasses
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from schema import canonical
from schema.accept import accept_fingerprint
from schema.host import Allocation, Build, Fingerprint, Hardware
from tests.trees import write
from worker.fingerprint import cpu, pycpuinfo, take
from worker.fingerprint.evidence import Notes
from worker.lock import HostLock

GIB_KB = 1 << 20
BOOT = "proc/sys/kernel/random/boot_id"
DMI = "sys/class/dmi/id"
SMALL = {
    BOOT: "4bb09f2a-6ded-4932-bfa6-bcde0fd0850c\n",
    "etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
    "etc/hostname": "gpu1\n",
    "proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\nmodel name : Intel(R) Xeon(R) Gold 6230\n"
    "physical id : 0\ncore id : 0\nflags : lm avx2 fma\n",
    "proc/meminfo": "MemTotal: 24683656 kB\nMemAvailable: 20000000 kB\n",
    "proc/loadavg": "0.50 0.40 0.30 1/100 1\n",
    "proc/self/cgroup": "0::/\n",
    "proc/self/mountinfo": "31 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/self/status": "Cpus_allowed_list:\t0\nMems_allowed_list:\t0\n",
    "sys/fs/cgroup/cgroup.procs": "1\n",
    "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n",
    "sys/devices/system/cpu/online": "0\n",
}


def four_cpus(order: list[int]) -> dict[str, str | int]:
    """Return a machine with two cores of two threads, with DMI, whose CPUs the kernel numbers in this `order`."""
    block = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 85\nstepping : 7\nmodel name : Intel Gold 6230\n"
    files: dict[str, str | int] = dict(SMALL)
    files["proc/cpuinfo"] = "\n".join(f"processor : {n}\n{block}flags : lm avx2 fma\n" for n in range(4))
    files["sys/devices/system/cpu/online"] = "0-3\n"
    files["proc/self/status"] = "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n"
    for place, number in enumerate(order):
        sibling = order[place ^ 1]
        topology = f"sys/devices/system/cpu/cpu{number}/topology"
        files[f"{topology}/thread_siblings_list"] = ",".join(map(str, sorted((number, sibling)))) + "\n"
        files[f"{topology}/physical_package_id"] = 0
        files[f"{topology}/core_id"] = place // 2
    names = {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge R740", "product_uuid": "4c4c4544-0042-3510-8052-b4"}
    return {**files, **{f"{DMI}/{name}": f"{value}\n" for name, value in names.items()}}


def took(home: Path, root: Path) -> Fingerprint:
    return take.take(home, None, root=root)


def without_time(found: Fingerprint) -> Fingerprint:
    """Return the fingerprint without what passes: the moment, and how the machine was at that moment."""
    evidence = dataclasses.replace(found.evidence, seen_at=None, booted_at=None) if found.evidence else None
    return dataclasses.replace(found, taken_at="", state=None, evidence=evidence)


def ids(found: Fingerprint) -> tuple[str, str, str]:
    return found.hardware.hardware_id, found.allocation.allocation_id, found.environment.environment_id


def host(n_physical: int | None, n_logical: int | None, allocation: Allocation | None = None) -> Fingerprint:
    fingerprint = take.take(Path("/nonexistent"), None, root=Path("/nonexistent"))
    hardware = Hardware(arch="x86_64", n_cores_physical=n_physical, n_cores_logical=n_logical)
    return dataclasses.replace(fingerprint, hardware=hardware, allocation=allocation or Allocation())


def test_a_recorded_machine_is_described_whole(tmp_path: Path) -> None:
    build = Build(binding="0.3.36")
    found = take.take(tmp_path / "home", build, root=write(tmp_path / "root", SMALL))

    assert found.hardware.cpu_name == "Intel(R) Xeon(R) Gold 6230"
    assert (found.hardware.n_packages, found.hardware.memory_gib, found.hardware.gpu_status) == (1, 24, "none")
    assert (found.hostname, found.uid_source, found.build) == ("gpu1", "stored", build)
    assert found.taken_at.endswith("Z")
    assert found.sources["cpu_name"] == "/proc/cpuinfo"
    assert (found.allocation.n_cpus, found.allocation.container, found.allocation.n_gpus) == (1, "none", 0)
    assert found.state
    assert found.state.load1 == 0.5
    assert found.evidence
    assert found.evidence.machine_id


def test_it_survives_the_way_through_json_and_over_the_border(tmp_path: Path) -> None:
    found = took(tmp_path / "home", write(tmp_path / "root", four_cpus([0, 1, 2, 3])))
    sent = json.loads(canonical.to_json(found))

    assert canonical.decode(Fingerprint, sent) == found
    assert accept_fingerprint(sent) == found


@pytest.mark.parametrize("content", ["x" * 6000, "0-999999\n", "9" * 30, "\0\ufffd{[", "DDR5 \u202e" * 500])
def test_no_odd_file_makes_a_fingerprint_that_the_border_refuses(tmp_path: Path, content: str) -> None:
    odd = [
        *(BOOT, "proc/self/cgroup", "proc/self/status", "proc/cpuinfo", "proc/meminfo", "proc/uptime", "etc/hostname"),
        *(f"{DMI}/{name}" for name in ("product_name", "bios_version", "product_uuid", "board_serial")),
        *("run/udev/data/+dmi:id", "run/systemd/container", "sys/firmware/acpi/platform_profile"),
        *(f"sys/devices/system/cpu/{name}" for name in ("vulnerabilities/mds", "smt/control", "cpufreq/policy0/boost")),
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
    ]
    root = write(tmp_path / "root", {**SMALL, **dict.fromkeys(odd, content)})

    assert accept_fingerprint(json.loads(canonical.to_json(took(tmp_path / "home", root))))


def test_no_serial_number_and_no_id_of_the_machine_leaves_it(tmp_path: Path) -> None:
    secret = {f"{DMI}/board_serial": "SN-SECRET-7\n", f"{DMI}/product_uuid": "4c4c4544-0042-3510-8052-b4c04f4d3332\n"}
    sent = canonical.to_json(took(tmp_path / "home", write(tmp_path / "root", {**SMALL, **secret})))

    assert not [one for one in ("SECRET", "b4c04f4d3332", "3d1219c7c4c5404aaa1f6d2a48adfda4") if one in sent]


def test_a_machine_that_shows_nothing_gives_a_fingerprint_of_reasons(tmp_path: Path) -> None:
    found = took(tmp_path / "home", write(tmp_path / "root", {}))

    assert found.hardware == Hardware(arch="unknown")
    assert found.allocation == Allocation()
    assert len(found.errors) > 8


def test_within_a_boot_the_slow_readers_are_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "root", SMALL)
    first = took(tmp_path / "home", root)
    monkeypatch.setattr(cpu, "read", None)
    monkeypatch.setattr("worker.fingerprint.gpu.read", None)

    assert without_time(took(tmp_path / "home", root)) == without_time(first)


@pytest.mark.parametrize("change", [{BOOT: "another\n"}, {"sys/devices/system/cpu/online": "0-1\n"}])
def test_another_boot_or_other_cpus_are_read_anew(tmp_path: Path, change: dict[str, str]) -> None:
    root = write(tmp_path / "root", SMALL)
    took(tmp_path / "home", root)
    write(root, {"proc/cpuinfo": SMALL["proc/cpuinfo"].replace("6230", "6230R"), **change})

    assert took(tmp_path / "home", root).hardware.cpu_name == "Intel(R) Xeon(R) Gold 6230R"


def test_facts_that_an_older_version_kept_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(tmp_path / "root", SMALL)
    monkeypatch.setattr("worker.fingerprint.cache.VERSION", 1)
    took(tmp_path / "home", root)
    monkeypatch.undo()
    write(root, {"proc/cpuinfo": SMALL["proc/cpuinfo"].replace("6230", "6230R")})

    assert took(tmp_path / "home", root).hardware.cpu_name == "Intel(R) Xeon(R) Gold 6230R"


def test_what_may_change_within_a_boot_is_always_read(tmp_path: Path) -> None:
    root = write(tmp_path / "root", SMALL)
    took(tmp_path / "home", root)
    governor = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    write(root, {governor: "powersave", "sys/fs/cgroup/cpu.max": "50000 100000\n"})
    write(root, {"proc/loadavg": "9.00 1.00 1.00 1/1 1"})
    found = took(tmp_path / "home", root)

    assert (found.environment.governor, found.allocation.cpu_quota_cores) == ("powersave", 0.5)
    assert found.state
    assert found.state.load1 == 9.0


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', None])
def test_a_damaged_cache_is_read_over(tmp_path: Path, damage: str | None) -> None:
    root = write(tmp_path / "root", SMALL)
    first = took(tmp_path / "home", root)
    for kept in (tmp_path / "home" / "fingerprint").rglob("*.json"):
        whole = kept.read_text()
        kept.write_text(whole.replace('"fact"', '"fiction"') if damage is None else damage)

    assert took(tmp_path / "home", root).hardware == first.hardware


def test_the_ids_are_the_same_twenty_times(tmp_path: Path) -> None:
    root = write(tmp_path / "root", four_cpus([0, 1, 2, 3]))

    assert len({ids(took(tmp_path / f"home{n % 7}", root)) for n in range(20)}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"proc/sys/kernel/osrelease": "7.0\n"},
        {"sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n"},
        {"etc/os-release": 'PRETTY_NAME="Another Linux"\n', "etc/machine-id": "f" * 31 + "0"},
        {f"{DMI}/bios_version": "2.20\n", "proc/loadavg": "40.00 30.00 20.00 1/100 1\n"},
    ],
    ids=str,
)
def test_the_hardware_stays_through_another_system_kernel_governor_and_bios(
    tmp_path: Path, change: dict[str, str]
) -> None:
    root = write(tmp_path / "root", four_cpus([0, 1, 2, 3]))
    first = took(tmp_path / "home", root)
    again = took(tmp_path / "home", write(root, {BOOT: "another\n", **change}))

    assert again.hardware.hardware_id == first.hardware.hardware_id
    assert again.allocation.allocation_id == first.allocation.allocation_id


@pytest.mark.parametrize("kept", [0, 1, 3, 6])
def test_the_hardware_stays_whatever_the_kernel_keeps_of_the_memory(tmp_path: Path, kept: int) -> None:
    found = []
    for share in (0, kept):
        size = 64 * GIB_KB * (100 - share) // 100
        files = {**four_cpus([0, 1, 2, 3]), "proc/meminfo": f"MemTotal: {size} kB\n"}
        found.append(took(tmp_path / "home", write(tmp_path / str(share), files)).hardware)

    assert found[0].hardware_id == found[1].hardware_id
    assert found[0].memory_gib == 64


def test_the_hardware_stays_however_the_kernel_numbers_the_cpus(tmp_path: Path) -> None:
    order = [0, 1, 2, 3]
    chance = random.Random(7)
    seen = set()
    for number in range(6):
        chance.shuffle(order)
        seen.add(ids(took(tmp_path / f"home{number}", write(tmp_path / str(number), four_cpus(order)))))

    assert len(seen) == 1


def test_the_hardware_stays_without_root_and_without_the_firmwares_tables(tmp_path: Path) -> None:
    files = four_cpus([0, 1, 2, 3])
    user = {name: content for name, content in files.items() if not name.endswith(("uuid", "serial"))}
    bare = {name: content for name, content in files.items() if not name.startswith(DMI)}
    found = [took(tmp_path / f"home{n}", write(tmp_path / str(n), each)) for n, each in enumerate((files, user, bare))]

    assert len({one.hardware.hardware_id for one in found}) == 1
    assert len({ids(one) for one in found[:2]}) == 1


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"proc/meminfo": "MemTotal: 50000000 kB\n"}, {"hardware"}),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, {"allocation"}),
        ({"proc/self/status": "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t0\n"}, {"allocation"}),
        ({".dockerenv": ""}, {"allocation"}),
        ({"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"}, {"environment"}),
        ({"sys/devices/system/cpu/smt/control": "off\n"}, {"environment"}),
        ({"proc/loadavg": "9.00 9.00 9.00 1/1 1\n", "proc/pressure/cpu": "some avg10=50.00 total=1\n"}, set()),
        ({"run/udev/data/+dmi:id": "E:MEMORY_DEVICE_0_SIZE=17179869184\n"}, set()),
    ],
    ids=str,
)
def test_each_id_changes_with_its_own_facts_alone(tmp_path: Path, change: Mapping[str, Any], parts: set[str]) -> None:
    root = write(tmp_path / "root", four_cpus([0, 1, 2, 3]))
    before = ids(took(tmp_path / "home", root))
    write(root, {**change, BOOT: "another\n"})
    after = ids(took(tmp_path / "home", root))
    names = ("hardware", "allocation", "environment")

    assert {name for name, one, other in zip(names, before, after, strict=True) if one != other} == parts


def test_a_copied_home_makes_the_other_machine_another_host_of_equal_hardware(tmp_path: Path) -> None:
    roots = [
        write(tmp_path / name, {**four_cpus([0, 1, 2, 3]), BOOT: name, f"{DMI}/product_uuid": f"{name}-0042-3510"})
        for name in ("4c4c4544", "5d5d5555")
    ]
    first, second = (took(tmp_path / "home", root) for root in roots)

    assert first.host_uid != second.host_uid
    assert second.cloned_from == first.host_uid
    assert first.hardware.hardware_id == second.hardware.hardware_id


def test_py_cpuinfo_is_not_asked_while_somebody_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKFLEET_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(pycpuinfo, "start", None)
    with HostLock(what="a sweep").acquire():
        busy = take.take(tmp_path / "home", None)

    assert "a sweep" in busy.sources["pycpuinfo"]
    assert not list((tmp_path / "home").rglob("cpu.json"))


def test_who_measures_asks_py_cpuinfo_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def finish(process: None, notes: Notes, seconds: float) -> dict[str, Any]:
        asked.append(seconds)
        return {}

    monkeypatch.setenv("TOKFLEET_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(pycpuinfo, "start", lambda: None)
    monkeypatch.setattr(pycpuinfo, "finish", finish)
    with HostLock(what="a sweep").acquire():
        take.take(tmp_path / "home", None, holds_lock=True)

    assert asked == [take.PYCPUINFO_SECONDS]


def test_nobody_can_begin_to_measure_while_py_cpuinfo_keeps_a_core_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = []

    def finish(process: None, notes: Notes, seconds: float) -> dict[str, Any]:
        holders.append(HostLock().try_acquire())
        return {}

    monkeypatch.setenv("TOKFLEET_LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(pycpuinfo, "start", lambda: None)
    monkeypatch.setattr(pycpuinfo, "finish", finish)
    take.take(tmp_path / "home", None)

    assert [holder and holder.what for holder in holders] == ["tokfleet fingerprint"]
    assert HostLock().try_acquire() is None


@pytest.mark.parametrize(
    ("n_physical", "n_logical", "allocation", "physical", "every"),
    [
        (8, 16, Allocation(), 8, 16),
        (8, 16, Allocation(n_cpus=4), 4, 4),
        (8, 16, Allocation(n_cpus=16, cpu_quota_cores=2.5), 2, 2),
        (8, 16, Allocation(n_cpus=16, cpu_quota_cores=0.5), 1, 1),
        (24, 32, Allocation(n_cpus=32), 24, 32),
        (None, 4, Allocation(), 4, 4),
        (None, None, Allocation(n_cpus=3), 3, 3),
        (None, None, Allocation(), 1, 1),
    ],
)
def test_physical_and_all_are_numbers_that_this_process_may_use(
    n_physical: int | None, n_logical: int | None, allocation: Allocation, physical: int, every: int
) -> None:
    fingerprint = host(n_physical, n_logical, allocation)

    assert (take.n_threads_physical(fingerprint), take.n_threads_all(fingerprint)) == (physical, every)


def test_this_machine_is_the_same_twice(tmp_path: Path) -> None:
    first, second = take.take(tmp_path, None), take.take(tmp_path, None)

    assert without_time(first) == without_time(second)
    assert take.n_threads_physical(first) >= 1
