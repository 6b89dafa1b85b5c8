import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from schema import canonical
from schema.host import Allocation, Build, Fingerprint, Hardware
from worker.fingerprint import cpu, take

BOOT = "proc/sys/kernel/random/boot_id"
SMALL = {
    BOOT: "4bb09f2a-6ded-4932-bfa6-bcde0fd0850c\n",
    "etc/machine-id": "3d1219c7c4c5404aaa1f6d2a48adfda4\n",
    "etc/hostname": "gpu1\n",
    "proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\nmodel name : Intel(R) Xeon(R) Gold 6230\n"
    "physical id : 0\ncore id : 0\nflags : lm avx2 fma\n",
    "proc/meminfo": "MemTotal: 24683656 kB\n",
    "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n",
    "sys/devices/system/cpu/online": "0\n",
}


def tree(root: Path, files: Mapping[str, str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def host(n_physical: int | None, n_logical: int | None, allocation: Allocation | None = None) -> Fingerprint:
    fingerprint = take.take(Path("/nonexistent"), None, root=Path("/nonexistent"))
    hardware = Hardware(arch="x86_64", n_cores_physical=n_physical, n_cores_logical=n_logical)
    return dataclasses.replace(fingerprint, hardware=hardware, allocation=allocation or Allocation())


def test_a_recorded_machine_is_described_whole(tmp_path: Path) -> None:
    build = Build(binding="0.3.36")
    found = take.take(tmp_path / "home", build, root=tree(tmp_path / "root", SMALL))

    assert found.hardware.cpu_name == "Intel(R) Xeon(R) Gold 6230"
    assert (found.hardware.n_packages, found.hardware.memory_gib, found.hardware.gpu_status) == (1, 24, "none")
    assert (found.hostname, found.uid_source, found.build) == ("gpu1", "stored", build)
    assert found.taken_at.endswith("Z")
    assert found.sources["cpu_name"] == "/proc/cpuinfo"


def test_it_survives_the_way_through_json(tmp_path: Path) -> None:
    found = take.take(tmp_path / "home", None, root=tree(tmp_path / "root", SMALL))
    sent = json.loads(canonical.to_json(found))

    assert canonical.decode(Fingerprint, sent) == found


def test_a_machine_that_shows_nothing_gives_a_fingerprint_of_reasons(tmp_path: Path) -> None:
    found = take.take(tmp_path / "home", None, root=tree(tmp_path / "root", {}))

    assert found.hardware == Hardware(arch="unknown")
    assert found.allocation == Allocation()
    assert len(found.errors) > 8


def test_within_a_boot_the_slow_readers_are_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path / "root", SMALL)
    first = take.take(tmp_path / "home", None, root=root)
    monkeypatch.setattr(cpu, "read", None)
    monkeypatch.setattr("worker.fingerprint.gpu.read", None)
    again = take.take(tmp_path / "home", None, root=root)

    assert dataclasses.replace(again, taken_at="") == dataclasses.replace(first, taken_at="")


@pytest.mark.parametrize("change", [{BOOT: "another\n"}, {"sys/devices/system/cpu/online": "0-1\n"}])
def test_another_boot_or_other_cpus_are_read_anew(tmp_path: Path, change: dict[str, str]) -> None:
    root = tree(tmp_path / "root", SMALL)
    take.take(tmp_path / "home", None, root=root)
    tree(root, {"proc/cpuinfo": SMALL["proc/cpuinfo"].replace("6230", "6230R"), **change})

    assert take.take(tmp_path / "home", None, root=root).hardware.cpu_name == "Intel(R) Xeon(R) Gold 6230R"


def test_what_may_change_within_a_boot_is_always_read(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", SMALL)
    take.take(tmp_path / "home", None, root=root)
    governor = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    tree(root, {governor: "powersave", "proc/self/status": "Cpus_allowed_list:\t0\n"})
    found = take.take(tmp_path / "home", None, root=root)

    assert (found.environment.governor, found.allocation.n_cpus) == ("powersave", 1)


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1}', None])
def test_a_damaged_cache_is_read_over(tmp_path: Path, damage: str | None) -> None:
    root = tree(tmp_path / "root", SMALL)
    first = take.take(tmp_path / "home", None, root=root)
    for kept in (tmp_path / "home" / "fingerprint").rglob("*.json"):
        whole = kept.read_text()
        kept.write_text(whole.replace('"fact"', '"fiction"') if damage is None else damage)

    assert take.take(tmp_path / "home", None, root=root).hardware == first.hardware


def test_the_ids_stay_through_a_reinstall_with_another_kernel(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", SMALL)
    first = take.take(tmp_path / "home", None, root=root)
    tree(root, {"proc/sys/kernel/osrelease": "7.0", "proc/meminfo": "MemTotal: 24583656 kB\n", BOOT: "another"})
    again = take.take(tmp_path / "home", None, root=root)

    assert again.hardware.hardware_id == first.hardware.hardware_id
    assert again.environment.environment_id != first.environment.environment_id


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

    assert dataclasses.replace(first, taken_at="") == dataclasses.replace(second, taken_at="")
    assert take.n_threads_physical(first) >= 1
