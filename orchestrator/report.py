"""Results as a person reads them: rates with their spread, how they feel, and the end of a run (pure).

Rows are mappings with the column names of the views `results` and `failures`. A spread that is
not known, as after one repetition, is shown as `?`, never as 0.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from orchestrator.roofline import BEYOND_DOUBT
from orchestrator.tables import escape, render
from schema.settings import Settings

Row = Mapping[str, Any]

NOTICEABLE_SHARE = 0.05
ID_CHARACTERS = 8
"""So much of a job's uid is shown; `--explain` and `--command` take the start of one."""

TOO_FAST = "Above 100 % something is not what it seems: `tokfleet results --explain ID` says what may be."

SETTINGS = (*(field.name for field in fields(Settings)), "build")


def feel(tokens_per_second: float) -> str:
    """Return how a decode rate feels to someone who reads along.

    Below 10 it `stutters`, from 10 it is `usable`, from 30 `smooth`, above 60 `silky`, above 100 `flying`.
    """
    if tokens_per_second < 10:
        return "stutters"
    if tokens_per_second < 30:
        return "usable"
    if tokens_per_second <= 60:
        return "smooth"
    return "silky" if tokens_per_second <= 100 else "flying"


def rate_text(rate: float | None, spread: float | None = None, with_spread: bool = False) -> str:
    """Return tokens per second as text, `965.1` or, `with_spread`, `965.1 ± 4.2`; `± ?` where the spread is unknown."""
    if rate is None:
        return "-"
    decimals = 0 if rate >= 1000 else 1 if rate >= 100 else 2
    text = f"{rate:.{decimals}f}"
    if not with_spread:
        return text
    least = 10**-decimals
    small = spread is not None and 0 < spread < least / 2
    return f"{text} ± {'?' if spread is None else f'<{least:g}' if small else f'{spread:.{decimals}f}'}"


def duration(seconds: float) -> str:
    """Return a span of time as people say it: `0.41 s`, `45 s`, `4 min`, `1 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def run_summary(rows: Sequence[Row], failures: Sequence[Row], where: str, width: int | None = None) -> list[str]:
    """Return the lines that end a run: the rates, what failed, where the rows are, and what to try next.

    `where` names the database. Only settings that differ between the rows are shown.
    """
    lines = [f"Measured {_counted(len(rows), 'test')}" + (f", {len(failures)} failed." if failures else "."), ""]
    if rows:
        lines += _rates(rows, width)
    settings = varying([*rows, *failures])
    for row in failures:
        lines.append(f"failed: {_what(row, settings)}: {row.get('stage')}: {_first_line(row.get('message'))}")
    uid = next((str(row["run_uid"]) for row in (*rows, *failures) if row.get("run_uid")), None)
    return [
        *lines,
        "",
        f"The rows are in {escape(where)}" + (f", run {uid}." if uid else "."),
        *_next(uid, bool(failures)),
    ]


def results_table(rows: Sequence[Row], width: int | None = None) -> list[str]:
    """Return rows of `results` as a table, newest first as they come; settings only where they differ.

    The median stands beside the mean where it differs by more than 5 %: some repetitions were unlike the others.
    `id` is what `--explain` takes.
    """
    settings = varying(rows)
    extras = _filled(ALWAYS, rows)
    ids = ["id"] * any(row.get("job_uid") for row in rows)
    names = ["when", "run", "host", "model", "test", *settings, "t/s", *extras, "quality", *ids]
    cells = [
        [
            minute(row.get("test_time")) or None,
            row.get("run_name"),
            row.get("host"),
            model_of(row),
            row.get("test"),
            *(_setting(row, name) for name in settings),
            rate_text(row.get("avg_ts"), row.get("stddev_ts"), True),
            *(ALWAYS[name](row) for name in extras),
            row.get("quality"),
            *(str(row.get("job_uid") or "")[:ID_CHARACTERS] for _ in ids),
        ]
        for row in rows
    ]
    lines = list(render(names, cells, "table", width))
    return [*lines, "", TOO_FAST] if any((row.get("mbu") or 0.0) > BEYOND_DOUBT for row in rows) else lines


def failures_table(rows: Sequence[Row], width: int | None = None) -> list[str]:
    """Return rows of `failures` as a table, with the reason in words as its last column."""
    names = ["when", "run", "host", "model", "test", "stage", "message"]
    cells = [
        [
            minute(row.get("test_time")) or None,
            *(row.get(name) for name in ("run_name", "host")),
            model_of(row),
            *(row.get(name) for name in ("test", "stage", "message")),
        ]
        for row in rows
    ]
    return list(render(names, cells, "table", width))


def stages_table(row: Row, width: int | None = None) -> list[str]:
    """Return the stages of one measured test as a table: tokens, time of one repetition, and rate."""
    cells: list[Sequence[Any]] = []
    if row.get("load_seconds") is not None:
        cells.append(("load", None, duration(row["load_seconds"]), None))
    for stage, tokens, rate in (
        ("prefill", row.get("n_prompt"), _prefill(row)),
        ("decode", row.get("n_gen"), _decode(row)),
    ):
        if tokens and rate:
            cells.append((stage, tokens, duration(tokens / rate), f"{rate_text(rate)} t/s"))
    return list(render(("stage", "tokens", "time", "rate"), cells, "table", width))


def varying(rows: Sequence[Row]) -> list[str]:
    """Return the settings that were not asked for alike in all rows, in a fixed order.

    In effect `n_batch` differs between any two tests, since llama.cpp cuts it to the context.
    """
    return [name for name in SETTINGS if len({str(row.get(f"asked_{name}")) for row in rows}) > 1]


def _rates(rows: Sequence[Row], width: int | None) -> list[str]:
    settings = varying(rows)
    hosts = ["host"] * (len({row.get("host_uid") for row in rows}) > 1)
    flagged = ["quality"] * any(row.get("quality") not in (None, "clean") for row in rows)
    extras = _filled(EXTRAS, rows)
    names = [*hosts, "model", "test", *settings, "prefill t/s", "decode t/s", "feels", *extras, "load", *flagged]
    cells = [_cells(row, hosts, settings, extras, flagged) for row in rows]
    lines = list(render(names, cells, "table", width))
    if any(row.get("stddev_ts") is None and row.get("kind") in ("pp", "tg") for row in rows):
        lines += ["", "± ? means that one repetition cannot tell the spread: `repeat: 5` in the sweep file can."]
    return lines


def _filled(columns: Mapping[str, Callable[[Row], str | None]], rows: Sequence[Row]) -> list[str]:
    return [name for name, text in columns.items() if any(text(row) for row in rows)]


def _cells(row: Row, hosts: list[str], settings: list[str], extras: list[str], flagged: list[str]) -> list[Any]:
    decode = _decode(row)
    each = None if decode is None else decode / (row.get("n_parallel") or 1)  # a person reads one of the sequences
    load = row.get("load_seconds")
    return [
        *(row.get(name) for name in hosts),
        model_of(row),
        row.get("test"),
        *(_setting(row, name) for name in settings),
        rate_text(_prefill(row), row.get("stddev_ts"), row.get("kind") == "pp"),
        rate_text(decode, row.get("stddev_ts"), row.get("kind") == "tg"),
        None if each is None else feel(each),
        *(EXTRAS[name](row) for name in extras),
        None if load is None else duration(load),
        *(row.get(name) for name in flagged),
    ]


def _undivided(row: Row) -> str | None:
    """Return the rate of a combined test whose parts are not known apart."""
    if row.get("kind") != "pg" or row.get("prompt_ts") is not None:
        return None
    return rate_text(row.get("avg_ts"), row.get("stddev_ts"), True)


def _pass(row: Row) -> str | None:
    return None if row.get("verify_ms") is None else f"{row['verify_ms']:.1f}"


def _median(row: Row) -> str | None:
    """Return the median of the repetitions where it is noticeably another rate than their mean."""
    mean, median = row.get("avg_ts"), row.get("median_ts")
    return rate_text(median) if mean and median and abs(median / mean - 1) > NOTICEABLE_SHARE else None


def _of_ceiling(row: Row) -> str | None:
    """Return the decode rate as a share of what the memory allows at most; above 100 % one of the two is not right."""
    return None if row.get("mbu") is None else f"{row['mbu']:.0%}"


def _fake(row: Row) -> str | None:
    """Return the method of a row that nothing was measured for."""
    return row["method"] if row.get("method") == "fake" else None


def _marked(row: Row) -> str | None:
    """Return why somebody said that a row is not to be compared."""
    return f"bad: {row.get('mark_reason')}" if row.get("marked_bad") else None


def _source(row: Row) -> str | None:
    """Return the name and line of the file that a row was imported from."""
    if row.get("origin") != "imported":
        return None
    name = re.split(r"[\\/]", str(row.get("source_file") or ""))[-1]
    return f"{name}:{row.get('source_line')}"


def _round(row: Row) -> str | None:
    """Return which round a row is of, where its sweep measured in several."""
    replica = row.get("replica") or 0
    return str(replica + 1) if replica or row.get("across") else None


ALWAYS: dict[str, Callable[[Row], str | None]] = {
    "round": _round,
    "median t/s": _median,
    "of ceiling": _of_ceiling,
    "method": _fake,
    "marked": _marked,
    "imported from": _source,
}
"""Columns of every table that are shown only where a row has something for them."""

EXTRAS = {"both t/s": _undivided, "ms a pass": _pass, **ALWAYS}
"""Columns of the summary that are shown only where a row has something for them."""


def _setting(row: Row, name: str) -> Any:
    """Return a setting as it was in effect or, where that could not be read back, as it was asked for."""
    value = row.get(name)
    return row.get(f"asked_{name}") if value is None else value


def _prefill(row: Row) -> float | None:
    rate: float | None = row.get("avg_ts") if row.get("kind") == "pp" else row.get("prompt_ts")
    return rate


def _decode(row: Row) -> float | None:
    rate: float | None = row.get("avg_ts") if row.get("kind") == "tg" else row.get("gen_ts")
    return rate


def minute(time: object) -> str:
    """Return a time as `2026-01-02 03:04`, an empty text for none."""
    return str(time or "")[:16].replace("T", " ")


def model_of(row: Row) -> str:
    """Return the name of the row's model without directories."""
    name = row.get("model") or row.get("model_filename") or "?"
    return str(name).rpartition("/")[2]


def _what(row: Row, settings: Sequence[str]) -> str:
    told = [f"{name}={row.get(f'asked_{name}')}" for name in settings]
    return escape(" ".join([model_of(row), str(row.get("test")), *told]))


def _first_line(text: Any) -> str:
    lines = str(text or "no reason known").strip().splitlines()
    return escape(lines[0] if lines else "")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _next(uid: str | None, failed: bool) -> list[str]:
    if uid is None:
        return []
    first = f"tokfleet results {uid} --failed" if failed else f"tokfleet results {uid}"
    return [
        "Next:",
        f"  {first}",
        f"  tokfleet results {uid} --format csv > rates.csv",
        '  tokfleet sql "select host, model, test, avg_ts from latest"',
    ]
