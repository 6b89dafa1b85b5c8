"""batched-bench's results: a prompt for each of several sequences, then their tokens side by side (pure).

One line is two results: the prompts together, and the tokens after them. It tells no model and no build.
"""

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.interchange.bench_fields import LARGEST_RATE, SETTINGS, Cells, count, number, read_field
from orchestrator.interchange.bench_row import extras_of
from orchestrator.interchange.found import Part, RefusedError, Row
from schema.job import Test

FIELDS = frozenset({"is_pp_shared", "pp", "tg", "pl", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg", "t", "speed"})
"""Fields that every line has."""
OF_SETTINGS = ("n_batch", "n_ubatch", "flash_attn", "n_gpu_layers", "n_threads")
PLACED = frozenset({*OF_SETTINGS, *FIELDS, "n_threads_batch"} - {"is_pp_shared"})
NOT_KEPT = (
    "batched-bench measures once and prints no model and no build; whether the sequences took turns it does not say."
)


def batched_rows(cells: Cells, line: int, raw: str, part: Part) -> Iterator[Row]:
    """Yield the results of one line; a phase without a rate is refused in `part`.

    Raises RefusedError where a field is missing or not of its kind.
    """
    missing = sorted(FIELDS - {*cells})
    if missing:
        raise RefusedError(f"it has no {', '.join(missing)}")
    pp, tg, pl = (int(read_field(name, count, cells[name])) for name in ("pp", "tg", "pl"))
    if not pl or not (pp or tg):
        raise RefusedError("it has no sequence or no token")
    shared = cells["is_pp_shared"]
    if shared not in ("0", "1"):
        raise RefusedError(f"is_pp_shared: {shared!r:.60} is not 0 or 1")
    settings = {name: read_field(name, SETTINGS[name], cells[name]) for name in OF_SETTINGS if name in cells}
    if "n_threads_batch" in cells:
        settings["n_threads_batch"] = read_field("n_threads_batch", count, cells["n_threads_batch"])
    extras = extras_of(cells, PLACED, "batched-bench")
    tests = {
        "pp": Test(n_prompt=pp, n_gen=0, n_parallel=1 if shared == "1" else pl),
        "tg": Test(n_prompt=0, n_gen=tg, n_depth=pp, n_parallel=pl),
    }
    for phase, test in tests.items():
        row = _phase(phase, test, cells, line, raw, part) if test.n_tokens else None
        if row is not None:
            yield replace(row, settings=settings, extras=extras)


def _phase(phase: str, test: Test, cells: Cells, line: int, raw: str, part: Part) -> Row | None:
    rate = float(read_field(f"speed_{phase}", number, cells[f"speed_{phase}"]))
    seconds = float(read_field(f"t_{phase}", number, cells[f"t_{phase}"]))
    if rate < 0 or seconds < 0 or LARGEST_RATE < rate < float("inf"):
        raise RefusedError(f"speed_{phase}: {rate:g} tokens per second in {seconds:g} s cannot be")
    if not 0 < rate < float("inf") or not seconds < float("inf"):
        part.refuse(line, f"the rate of {test.name} is {rate:g}: nothing was measured", raw, "void")
        return None
    ns = round(seconds * 1e9)
    return Row(
        format="batched-bench",
        line=line,
        raw=raw,
        test=test,
        avg_ts=rate,
        samples_ns=(ns,) if ns else (),
        samples_ts=(rate,) if ns else (),
        doubts=(NOT_KEPT,),
    )
