"""The cells of one row as a `Row`: the test, the rate and what goes with them, or a refusal with its reason (pure)."""

import math
import re
import statistics
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.interchange.bench_fields import (
    FACTS,
    LARGEST_RATE,
    REQUIRED,
    SETTINGS,
    SINCE_DEPTHS,
    Cells,
    backends_of,
    count,
    free_text,
    number,
    read_field,
    settings_of,
)
from orchestrator.interchange.found import NOISY, GivenModel, RefusedError, Row
from schema.job import Test

MOST_TOKENS = 2**31 - 1
MOST_SAMPLES = 10_000
PLACED = frozenset({*SETTINGS, *FACTS, "use_mmap", "use_direct_io", "f16_kv"})
FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]{0,60}")
_COLUMN = re.compile(r"[^\0-\x1f\x7f\ud800-\udfff]{0,60}")
_LOST = re.compile("[\x80-\x9f\ufffd\uffff]")
"""What letters beyond ASCII became: llama-bench for x86 writes each of their bytes as \\uffff and an f in JSON."""


def row_of(
    cells: Cells,
    *,
    form: str,
    line: int,
    raw: str,
    samples: tuple[Sequence[str], Sequence[str]] = ((), ()),
    printed: tuple[str | None, str | None] = (None, None),
    table: str = "",
) -> Row:
    """Return the row that `cells` are; `samples` are ns and t/s as written, `printed` the sizes of a table.

    Raises RefusedError where a needed field is missing, a field is not of its kind, or there is no finite rate.
    """
    facts: dict[str, Any] = {name: read_field(name, read, cells[name]) for name, read in FACTS.items() if name in cells}
    test = _test(cells, facts)
    rate = _rate(facts["avg_ts"])
    spread = facts.get("stddev_ts")
    if spread is not None and spread < 0:
        raise RefusedError(f"stddev_ts: {cells['stddev_ts']} is negative")
    if spread is not None and LARGEST_RATE < spread < math.inf:
        raise RefusedError(f"stddev_ts: {spread:g} tokens per second cannot be")
    samples_ns, samples_ts = _samples(*samples)
    clean, doubts = _names(facts)
    row = Row(
        format=form,
        line=line,
        raw=raw,
        table=table,
        test=test,
        avg_ts=rate,
        stddev_ts=None if spread is None or not math.isfinite(spread) else spread,
        avg_ns=facts.get("avg_ns") or None,
        stddev_ns=facts.get("stddev_ns"),
        samples_ns=samples_ns,
        samples_ts=samples_ts,
        settings=settings_of(cells),
        model=GivenModel(
            model_type=clean["model_type"],
            filename=clean["model_filename"],
            model_size=facts.get("model_size") or None,
            model_n_params=facts.get("model_n_params") or None,
            printed_size=printed[0],
            printed_params=printed[1],
        ),
        build_commit=_build(facts.get("build_commit")),
        build_number=facts.get("build_number"),
        cpu_info=clean["cpu_info"],
        gpu_info=clean["gpu_info"],
        backends=backends_of(cells),
        tested_at=facts.get("test_time"),
        extras=extras_of(cells, PLACED, form),
        doubts=tuple(doubts),
    )
    return _with_doubts(row)


def _test(cells: Cells, facts: dict[str, Any]) -> Test:
    missing = [name for name in REQUIRED if name not in cells]
    if missing:
        raise RefusedError(f"it has no {', '.join(missing)}")
    if "model_type" not in cells and "model_filename" not in cells:
        raise RefusedError("it names no model")
    if "n_depth" not in cells and any(name in cells for name in SINCE_DEPTHS):
        raise RefusedError("it has lost n_depth, which this version of llama-bench wrote")
    test = Test(n_prompt=facts["n_prompt"], n_gen=facts["n_gen"], n_depth=facts.get("n_depth", 0))
    if not test.n_tokens:
        raise RefusedError("neither n_prompt nor n_gen is above zero")
    if max(test.n_prompt, test.n_gen, test.n_depth) > MOST_TOKENS:
        raise RefusedError("n_prompt, n_gen or n_depth is too large for a number of tokens")
    return test


def _rate(rate: float) -> float:
    if not math.isfinite(rate) or rate == 0:
        raise RefusedError(f"the rate is {rate:g}: nothing was measured", "void")
    if rate < 0 or rate > LARGEST_RATE:
        raise RefusedError(f"avg_ts: {rate:g} tokens per second cannot be")
    return rate


def _samples(ns: Sequence[str], ts: Sequence[str]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if max(len(ns), len(ts)) > MOST_SAMPLES:
        raise RefusedError(f"it has more than {MOST_SAMPLES} samples")
    if ns and ts and len(ns) != len(ts):
        raise RefusedError(f"samples_ns has {len(ns)} values, samples_ts {len(ts)}")
    times = tuple(int(read_field("samples_ns", count, text)) for text in ns)
    rates = tuple(float(read_field("samples_ts", number, text)) for text in ts)
    if not all(times) or not all(math.isfinite(rate) and rate > 0 for rate in rates):
        return (), ()
    return times, rates


def _names(facts: dict[str, Any]) -> tuple[dict[str, str | None], list[str]]:
    """Return the names of the row, None for each whose letters were lost, and a doubt for each of those."""
    names = ("model_type", "model_filename", "cpu_info", "gpu_info")
    lost = [name for name in names if _LOST.search(facts.get(name, ""))]
    doubts = [f"{name} has lost letters beyond ASCII on its way, so it is not taken as a name." for name in lost]
    return {name: None if name in lost else facts.get(name) for name in names}, doubts


def _build(commit: str | None) -> str | None:
    return None if commit is None or commit.lower() == "unknown" else commit


def extras_of(cells: Cells, placed: Container[str], form: str) -> dict[str, str]:
    """Return what is not `placed`: old switches and fields nobody knows yet, as csv writes them.

    Raises RefusedError for a name that no version of llama-bench could have written in this form.
    """
    named = _COLUMN if form == "md" else FIELD
    kept = {name: text for name, text in cells.items() if name not in placed}
    for name, text in kept.items():
        read_field(name, count if name.startswith("fit_") else free_text, text)
        if not named.fullmatch(name):
            raise RefusedError(f"{name!r:.60} is no name of a field")
    as_in_csv = {"true": "1", "false": "0"}
    return {name: as_in_csv.get(text, text) for name, text in kept.items()}


def _with_doubts(row: Row) -> Row:
    return replace(row, doubts=(*row.doubts, *_doubts(row)))


def _doubts(row: Row) -> list[str]:
    found = []
    if row.repetitions == 1:
        found.append("It was measured once, so its spread is not known.")
    elif row.stddev_ts == 0:
        found.append("Its spread is printed as 0, as of one repetition, so it is taken as not known.")
    elif row.stddev_ts is not None and row.stddev_ts >= NOISY * row.avg_ts:
        found.append(f"It is noisy: the spread {row.stddev_ts:.4g} is {row.stddev_ts / row.avg_ts:.0%} of the mean.")
    other = _rate_of_times(row)
    if other is not None and not 0.9 * other <= row.avg_ts <= other * (1.1 + 2 * _variation(row) ** 2):
        found.append(f"Its rate {row.avg_ts:.6g} contradicts its times, which say {other:.6g} tokens per second.")
    return found


def _rate_of_times(row: Row) -> float | None:
    if row.format == "batched-bench" or (not row.samples_ns and not row.avg_ns):
        return None
    mean = statistics.fmean(row.samples_ns) if row.samples_ns else float(row.avg_ns or 1)
    return 1e9 * row.test.n_tokens / mean


def _variation(row: Row) -> float:
    return (row.stddev_ts or 0.0) / row.avg_ts
