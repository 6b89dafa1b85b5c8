from pathlib import Path

from schema.host import Cache
from worker.fingerprint import apple, cpu
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes

M1 = """\
hw.ncpu: 8
hw.byteorder: 1234
hw.physicalcpu: 8
hw.logicalcpu: 8
hw.packages: 1
hw.optional.arm64: 1
hw.optional.neon: 1
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 0
hw.nperflevels: 2
hw.perflevel0.physicalcpu: 4
hw.perflevel0.logicalcpu: 4
hw.perflevel0.l1icachesize: 196608
hw.perflevel0.l1dcachesize: 131072
hw.perflevel0.l2cachesize: 12582912
hw.perflevel0.cpusperl2: 4
hw.perflevel0.name: Performance
hw.perflevel1.physicalcpu: 4
hw.perflevel1.logicalcpu: 4
hw.perflevel1.l1icachesize: 131072
hw.perflevel1.l1dcachesize: 65536
hw.perflevel1.l2cachesize: 4194304
hw.perflevel1.cpusperl2: 4
hw.perflevel1.name: Efficiency
machdep.cpu.brand_string: Apple M1
machdep.cpu.core_count: 8
"""
INTEL = """\
hw.physicalcpu: 6
hw.logicalcpu: 12
hw.packages: 1
hw.cacheconfig: 12 2 2 12 0 0 0 0 0 0
hw.l1icachesize: 32768
hw.l1dcachesize: 32768
hw.l2cachesize: 262144
hw.l3cachesize: 12582912
machdep.cpu.vendor: GenuineIntel
machdep.cpu.brand_string: Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz
machdep.cpu.family: 6
machdep.cpu.model: 158
machdep.cpu.stepping: 10
machdep.cpu.features: FPU FMA AVX1.0 F16C
machdep.cpu.leaf7_features: AVX2
"""


def read(text: str) -> Cpu:
    return cpu.read(Path("/nonexistent"), Notes(), {}, text)


def test_the_levels_of_an_apple_chip_are_its_core_types() -> None:
    found = read(M1)

    assert [(one.key, one.name, one.kind, one.n_cores, one.threads_per_core) for one in found.core_types] == [
        ("Apple M1-perflevel0", "Apple M1 performance core", "performance", 4, 1),
        ("Apple M1-perflevel1", "Apple M1 efficiency core", "efficiency", 4, 1),
    ]
    assert (found.arch, found.name, found.vendor) == ("aarch64", "Apple M1", "Apple")
    assert (found.n_packages, found.n_cores_physical, found.n_cores_logical) == (1, 8, 8)
    assert found.isa == ("asimd", "asimddp")
    assert Cache(level=2, kind="unified", size_bytes=12 << 20, instances=1) in found.caches
    assert Cache(level=1, kind="data", size_bytes=64 << 10, instances=4) in found.caches


def test_a_mac_of_intel_has_one_type_and_counts_its_caches_by_who_shares_them() -> None:
    found = read(INTEL)

    assert [(one.key, one.kind, one.n_cores, one.threads_per_core) for one in found.core_types] == [
        ("6-158-10", None, 6, 2)
    ]
    assert (found.arch, found.vendor, found.isa) == ("x86_64", "GenuineIntel", ("avx", "avx2", "fma", "f16c"))
    assert [(one.level, one.instances) for one in found.caches] == [(1, 6), (1, 6), (2, 6), (3, 1)]


def test_the_name_that_the_first_systems_gave_every_chip_is_none() -> None:
    found = read(M1.replace("Apple M1", "Apple processor"))

    assert (found.name, found.core_types[0].key) == (None, None)


def test_other_systems_and_garbage_are_no_mac() -> None:
    assert not apple.is_apple(apple.parse("hw.model = AMD Ryzen 7\nhw.ncpu = 16\n"))
    assert read("\0\n::\nhw.physicalcpu: x\n") == Cpu(arch="unknown")
    assert read(M1.replace(": 4", ": four")).core_types[0].n_cores is None
