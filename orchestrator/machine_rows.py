"""What workers tell of machines, as rows: fingerprints, builds and probes (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any

from schema.canonical import decode
from schema.host import Allocation, Build, Cache, CoreType, Environment, Fingerprint, Gpu, Hardware
from schema.machine_tables import allocation, build, environment, hardware, host
from schema.probe import Probe

Row = dict[str, Any]


def instant(text: str) -> datetime:
    """Return the instant that `text` (ISO 8601 with a zone) names, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def text_of(moment: datetime) -> str:
    """Return `moment` as ISO 8601 in UTC with `Z`, with a fraction only where it has one."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def hardware_row(value: Hardware) -> Row:
    """Return the row of `value`, with its GPUs' names as llama-bench joins them; `facts` holds all of it."""
    whole = asdict(value)
    return _columns(hardware, whole) | {
        "hardware_id": value.hardware_id,
        "gpu_names": ", ".join(gpu.name for gpu in value.gpus) or None,
        "core_types": " + ".join(map(_core_type, value.core_types)) or None,
        "n_numa_nodes": len(value.numa) or None,
        "cache_bytes": last_level_bytes(value.caches),
        "gpu_memory_bytes": _gpu_memory_bytes(value.gpus),
        "facts": whole,
    }


def last_level_bytes(caches: Iterable[Cache]) -> int | None:
    """Return the bytes of all caches of the processors' highest level together; None where none is known."""
    data = [cache for cache in caches if cache.kind in ("data", "unified")]
    last = max((cache.level for cache in data), default=0)
    return sum(cache.size_bytes * cache.instances for cache in data if cache.level == last) or None


def _core_type(value: CoreType) -> str:
    """Return how many cores of which design, such as `8 × Cortex-A76`."""
    kind = f" ({value.kind})" if value.kind else ""
    return f"{value.n_cores or '?'} × {value.name or value.key or 'unknown'}{kind}"


def _gpu_memory_bytes(gpus: Iterable[Gpu]) -> int | None:
    """Return the memory of all GPUs that have one of their own; None where one does not tell, or none has any."""
    own = [gpu.vram_bytes for gpu in gpus if not gpu.unified]
    return sum(size or 0 for size in own) if own and None not in own else None


def allocation_row(value: Allocation) -> Row:
    """Return the row of `value`; `facts` holds all of it."""
    whole = asdict(value)
    return _columns(allocation, whole) | {"allocation_id": value.allocation_id, "facts": whole}


def environment_row(value: Environment) -> Row:
    """Return the row of `value`; `facts` holds all of it."""
    whole = asdict(value)
    return _columns(environment, whole) | {"environment_id": value.environment_id, "facts": whole}


def build_row(value: Build) -> Row:
    """Return the row of `value`, with its back ends as llama-bench joins them."""
    own = _columns(build, asdict(value))
    return own | {"build_id": value.build_id, "backends": ",".join(value.backends) or None}


def host_row(fingerprint: Fingerprint) -> Row:
    """Return the row of the host that `fingerprint` describes."""
    return _columns(host, asdict(fingerprint)) | {
        "fingerprint_at": instant(fingerprint.taken_at),
        "hardware_id": fingerprint.hardware.hardware_id,
        "allocation_id": fingerprint.allocation.allocation_id,
        "environment_id": fingerprint.environment.environment_id,
        "build_id": fingerprint.build.build_id if fingerprint.build else None,
    }


def probe_row(value: Probe, host_id: int) -> Row:
    """Return the row of `value`, a probe of the host with this id."""
    own = asdict(value)
    del own["host_uid"]
    return own | {"host_id": host_id, "taken_at": instant(value.taken_at)}


def probe_value(row: Mapping[Any, Any]) -> Probe:
    """Return the probe that `row` keeps; it needs `host_uid` besides."""
    own = {field.name: row[field.name] for field in fields(Probe)}
    empty: Row = {"points": (), "details": {}, "errors": ()}
    missing = {name: value for name, value in empty.items() if own[name] is None}
    return decode(Probe, own | missing | {"taken_at": text_of(row["taken_at"])})


def _columns(table: Any, whole: Mapping[str, Any]) -> Row:
    """Return what of `whole` has a column of its own; the rest is in `facts`."""
    return {name: value for name, value in whole.items() if name in table.c}
