"""A machine of which everything is known, and one of which nothing is, through the border into the store and back."""

import json
import types
import typing
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orchestrator.machine_rows import hardware_row, last_level_bytes, probe_row, probe_value
from orchestrator.store import Store
from schema.accept import accept_fingerprint, accept_probe, accept_record
from schema.canonical import to_json
from schema.host import Allocation, Cache, CoreType, Environment, Evidence, Fingerprint, Gpu, Hardware, Numa
from schema.probe import Probe
from schema.record import Conditions, Record
from tests.factories import make_hardware, make_job, make_record, make_run
from tests.stores import new_store

T = TypeVar("T")
MIB = 1 << 20
HASHED = {field.name for field in fields(Evidence)}


def filled(cls: type[T], **given: Any) -> T:
    """Return an instance of the dataclass `cls` in which every field has a value, however deep."""
    hints = typing.get_type_hints(cls)
    values = {field.name: _value(hints[field.name], field.name) for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**(values | given))


def _value(hint: Any, name: str) -> Any:
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value(options[0], name)
    if origin is typing.Literal:
        return options[0]
    if origin is tuple:
        return (_value(options[0], name),)
    if origin is dict:
        return {"a": _value(options[1], name)}
    if is_dataclass(hint):
        return filled(hint)  # type: ignore[arg-type]
    if hint is str:
        hashed = "0123456789abcdef" * 2 if name in HASHED else f"a {name}"
        return "2026-01-02T03:04:05Z" if name.endswith("_at") else hashed
    return {int: 3, float: 1.5, bool: True}[hint]


def nothing() -> Fingerprint:
    """Return the least that a fingerprint can be."""
    return Fingerprint(
        host_uid="host-0",
        uid_source="derived",
        hostname="",
        taken_at="2026-01-02T03:04:05Z",
        hardware=Hardware(arch=""),
        allocation=Allocation(),
        environment=Environment(),
    )


def payload(value: Any) -> dict[str, Any]:
    """Return `value` as it comes over the border."""
    made: dict[str, Any] = json.loads(to_json(value))
    return made


def test_a_fingerprint_with_everything_is_stored_whole(tmp_path: Path) -> None:
    whole = filled(Fingerprint)
    with Store.open(str(new_store(tmp_path))) as store:
        store.save_fingerprint(accept_fingerprint(payload(whole)))
        (row,) = store.hosts()
    for part in ("hardware", "allocation", "environment"):
        assert json.loads(row[f"{part}_facts"]) == payload(getattr(whole, part))
    for part in ("memory_modules", "state", "evidence"):
        assert json.loads(row[part]) == payload(getattr(whole, part))
    assert row["core_types"] == "3 × a name (a kind)"
    assert (row["n_numa_nodes"], row["gpu_status"], row["cloned_from"]) == (1, "a gpu_status", "a cloned_from")
    assert row["hardware_id"] == whole.hardware.hardware_id
    assert row["gpu_info"] == "a name"


def test_a_fingerprint_with_nothing_is_stored_too(tmp_path: Path) -> None:
    with Store.open(str(new_store(tmp_path))) as store:
        store.save_fingerprint(accept_fingerprint(payload(nothing())))
        (row,) = store.hosts()
    unknown = ("cpu_info", "core_types", "cpu_cache_bytes", "gpu_memory_bytes", "n_numa_nodes", "state", "evidence")
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert json.loads(row["environment_facts"]) == payload(Environment())


def test_a_newer_fingerprint_with_nothing_takes_the_place_of_one_with_everything(tmp_path: Path) -> None:
    with Store.open(str(new_store(tmp_path))) as store:
        store.save_fingerprint(filled(Fingerprint, host_uid="host-0", taken_at="2026-01-01T00:00:00Z"))
        store.save_fingerprint(nothing())
        (row,) = store.hosts()
    assert (row["state"], row["memory_modules"], row["cpu_info"]) == (None, None, None)


def test_conditions_and_energy_with_everything_have_a_column_each(tmp_path: Path) -> None:
    conditions = filled(Conditions)
    job = make_job()
    record = accept_record(payload(make_record(job, conditions=conditions, series_uid="s-1")))
    with Store.open(str(new_store(tmp_path))) as store:
        store.save_run(make_run(), [job])
        store.save_records([record])
        (row,) = store.results()
    own = asdict(conditions)
    energy, gpus = own.pop("energy"), own.pop("gpu")
    assert {name: row[name] for name in own} == own
    assert json.loads(row["gpu_conditions"]) == json.loads(json.dumps(gpus))
    for name in ("seconds", "method", "valid", "reason"):
        assert row[f"energy_{name}"] == energy[name]
    for name in ("joules_total", "joules_idle", "joules_per_prefill_token", "joules_per_decoded_token"):
        assert row[name] == energy[name]
    assert json.loads(row["energy_parts"]) == energy["parts"]
    assert row["series_uid"] == "s-1"


def test_a_whole_record_with_everything_passes_the_border(tmp_path: Path) -> None:
    job = make_job()
    own = {"job_uid": job.job_uid, "run_uid": job.run_uid, "host_uid": job.host_uid, "failure": None}
    record = accept_record(payload(filled(Record, status="measured", **own)))
    with Store.open(str(new_store(tmp_path))) as store:
        store.save_run(make_run(), [job])
        store.save_records([record])
        (row,) = store.results()
    assert (row["weight_bytes_per_token"], row["active_params"], row["prompt_params"]) == (3, 3, 3)


@pytest.mark.parametrize("value", [filled(Probe), filled(Probe, points=(), details={}, errors=(), value=None)])
def test_a_probe_is_the_same_after_a_row(value: Probe) -> None:
    accepted = accept_probe(payload(value))
    assert probe_value(probe_row(accepted, 7) | {"host_uid": value.host_uid}) == value


def test_a_row_from_before_probes_had_columns_is_no_obstacle() -> None:
    empty: dict[str, Any] = dict.fromkeys(field.name for field in fields(Probe))
    whole = probe_row(filled(Probe), 7)
    old = empty | {name: whole[name] for name in ("probe_uid", "kind", "taken_at", "details")}
    assert probe_value(old | {"host_uid": "h"}).points == ()


def test_the_last_level_is_all_its_instances_and_no_memory_side_cache() -> None:
    caches = (
        Cache(level=1, kind="instruction", size_bytes=32768, instances=16),
        Cache(level=2, kind="unified", size_bytes=MIB, instances=8),
        Cache(level=3, kind="unified", size_bytes=32 * MIB, instances=2),
        Cache(level=4, kind="memory-side", size_bytes=16384 * MIB, instances=1),
    )
    assert last_level_bytes(caches) == 64 * MIB
    assert last_level_bytes(()) is None


def test_core_types_are_listed_with_their_numbers() -> None:
    types_ = (CoreType(name="Cortex-A76", n_cores=4), CoreType(name="Cortex-A55", n_cores=4), CoreType(key="x"))
    assert hardware_row(make_hardware(core_types=types_))["core_types"] == "4 × Cortex-A76 + 4 × Cortex-A55 + ? × x"
    assert hardware_row(make_hardware(numa=(Numa(n_cpus=8), Numa(n_cpus=0))))["n_numa_nodes"] == 2


@pytest.mark.parametrize(
    ("gpus", "n_bytes"),
    [
        ((), None),
        ((Gpu(vendor="n", name="a", vram_bytes=8), Gpu(vendor="n", name="b", vram_bytes=16)), 24),
        ((Gpu(vendor="n", name="a", vram_bytes=8), Gpu(vendor="n", name="b")), None),
        ((Gpu(vendor="n", name="GB10", vram_bytes=128, unified=True),), None),
    ],
)
def test_memory_that_is_the_machines_own_is_not_counted_as_a_cards(gpus: tuple[Gpu, ...], n_bytes: int | None) -> None:
    assert hardware_row(make_hardware(gpus=gpus))["gpu_memory_bytes"] == n_bytes
