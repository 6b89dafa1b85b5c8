"""Keep measured attempts beside the limits of their machine, within a transaction that the caller holds.

The shares are columns of the attempt, computed in one place (`orchestrator.roofline`) for every database, and not a
view's business: choosing a probe and interpolating its curve in SQL would be a second arithmetic. A column goes
stale where what it was computed from comes later. So it is filled when the attempt is stored, and again when a
probe arrives that bears on it, or the facts of its machine: what is stored is what computing now would give.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, or_, select, update

from orchestrator.candidates import Candidates, Fields
from orchestrator.machine_rows import instant
from orchestrator.roofline import Limits, Machine, Place, Rates, between, curve_probe, gemm_curve, reading_probe, roof
from schema.job import Test
from schema.probe import Probe
from schema.record import ModelFacts
from schema.tables import attempt, build, hardware, job, model

DISTURBED = ("contended", "throttled", "limited")

_FACTS = tuple(field.name for field in fields(ModelFacts) if field.name != "filename")
_OWN = (
    *("id", "series_uid", "started_at", "hardware_id", "allocation_id", "quality", "avg_ts", "prompt_ts", "gen_ts"),
    *("n_threads", "n_threads_batch", "n_ubatch", "type_k", "type_v", "n_gpu_layers", "no_kv_offload", "no_op_offload"),
    *("devices", "split_mode", "in_effect", "resolved"),
)
_QUERY = (
    select(
        *(attempt.c[name] for name in _OWN),
        *(job.c[field.name] for field in fields(Test)),
        job.c.host_id,
        *(model.c[name].label(f"model_{name}") for name in _FACTS),
        hardware.c.cache_bytes,
        hardware.c.gpus,
        build.c.gpu_offload,
    )
    .select_from(attempt)
    .join(job, job.c.id == attempt.c.job_id)
    .outerjoin(model, model.c.id == attempt.c.model_id)
    .outerjoin(hardware, hardware.c.hardware_id == attempt.c.hardware_id)
    .outerjoin(build, build.c.build_id == attempt.c.build_id)
    .where(attempt.c.status == "measured")
)


def settle_attempts(connection: Connection, attempt_ids: Sequence[int]) -> None:
    """Fill in how close the attempts came to the limits of their machines, as far as they are known now."""
    _settle(connection, attempt.c.id.in_(attempt_ids))


def settle_after(connection: Connection, value: Probe, host_id: int) -> None:
    """Fill in anew the attempts on which a probe of this host, that was just stored, may bear."""
    if value.hardware_id is None or value.value is None or value.kind == "memory_copy":
        return
    bears = attempt.c.started_at >= instant(value.taken_at)
    if value.series_uid is not None:
        bears = or_(bears, attempt.c.series_uid == value.series_uid)
    _settle(connection, job.c.host_id == host_id, attempt.c.hardware_id == value.hardware_id, bears)


def settle_hardware(connection: Connection, hardware_id: str) -> None:
    """Fill in anew the attempts on a hardware whose facts were just stored."""
    _settle(connection, attempt.c.hardware_id == hardware_id)


def limits_of(connection: Connection, attempt_uid: str) -> Limits | None:
    """Return what the attempt with this uid was settled from; None where there is none that measured."""
    row = connection.execute(_QUERY.where(attempt.c.attempt_uid == attempt_uid)).mappings().first()
    return None if row is None else _limits(row, Candidates(connection, [row]))


def _settle(connection: Connection, *terms: ColumnElement[bool]) -> None:
    found = connection.execute(_QUERY.where(*terms)).mappings().all()
    candidates = Candidates(connection, found)
    values = []
    for row in found:
        limits = _limits(row, candidates)
        values.append({**asdict(limits.roof), "probe_id": candidates.ids.get(limits.probe_uid), "own_id": row["id"]})
    if values:
        connection.execute(update(attempt).where(attempt.c.id == bindparam("own_id")), values)


def _limits(row: Fields, candidates: Candidates) -> Limits:
    rates, facts = _rates(row), _model(row)
    machine = _machine(row, rates, candidates)
    return Limits(rates=rates, model=facts, machine=machine, roof=roof(rates, facts, machine))


def _rates(row: Fields) -> Rates:
    test = Test(**{field.name: row[field.name] for field in fields(Test)})
    place = _place(row)
    return Rates(
        test=test,
        prompt_ts=row["avg_ts"] if test.kind == "pp" else row["prompt_ts"],
        gen_ts=row["avg_ts"] if test.kind in ("tg", "verify") else row["gen_ts"],
        n_threads=_number(row, "n_threads"),
        n_threads_batch=_number(row, "n_threads_batch"),
        n_ubatch=_number(row, "n_ubatch"),
        type_k=str(_effective(row, "type_k") or "f16"),
        type_v=str(_effective(row, "type_v") or "f16"),
        place=place,
        prompt_on_cpu=place == "cpu" and _no_device_helps(row),
        undisturbed=row["quality"] not in DISTURBED,
    )


def _model(row: Fields) -> ModelFacts | None:
    facts = {name: row[f"model_{name}"] for name in _FACTS}
    return ModelFacts(filename="", **facts) if facts["sha256"] else None


def _effective(row: Fields, name: str) -> Any:
    """Return a setting as it was in effect or, where that could not be read back, as it was resolved."""
    return row["resolved"].get(name) if row[name] is None else row[name]


def _number(row: Fields, name: str) -> int | None:
    value = _effective(row, name)
    return value if isinstance(value, int) else None


def _place(row: Fields) -> Place | None:
    """Return where the weights and the cache lay; None where they lay in several places, or nothing tells."""
    layers, n_layer = row["n_gpu_layers"], row["model_n_layer"]
    if layers == 0 or row["gpu_offload"] is False:
        return "cpu"
    overridden = (row["in_effect"].get("tensors_overridden") or {}).get("value")
    whole = layers is not None and n_layer is not None and layers > n_layer  # the output counts as one
    elsewhere = overridden or row["no_kv_offload"] == "on" or (row["devices"] or "").startswith("RPC")
    return "gpu" if whole and not elsewhere else None


def _no_device_helps(row: Fields) -> bool:
    """Tell whether the CPU alone computed the prompt: devices help with large batches though no layer is theirs."""
    return row["gpu_offload"] is False or row["devices"] == "none" or _effective(row, "no_op_offload") == "on"


def _machine(row: Fields, rates: Rates, candidates: Candidates) -> Machine:
    if row["hardware_id"] is None:
        return Machine()
    if rates.place == "gpu":
        return Machine(reading=_gpu_probe(row, candidates.fitting(row, "gpu_memory")))
    reading = candidates.fitting(row, "memory_read")
    gemm = candidates.fitting(row, "gemm_f32")
    n_threads = rates.prompt_threads
    return Machine(
        reading=reading_probe(reading, row["series_uid"], n_threads if rates.test.kind == "pp" else rates.n_threads),
        curve=curve_probe(reading),
        gemm=next((each for each in gemm if between(gemm_curve(each), n_threads)), None),
        cache_bytes=row["cache_bytes"],
    )


def _gpu_probe(row: Fields, probes: Sequence[Probe]) -> Probe | None:
    """Return the probe of the GPU's memory; None where GPUs differ, one is unknown, or all read parts of a layer."""
    newest: dict[str | None, Probe] = {}
    for each in probes:
        newest.setdefault(each.device, each)
    several = "/" in (row["devices"] or "")
    alike = len(newest) == len(row["gpus"] or ()) and len({each.value for each in newest.values()}) == 1
    if not alike or (several and _effective(row, "split_mode") != "layer"):
        return None
    return next(iter(newest.values()))
