"""What a file of llama-bench's holds: its rows in our names, and what was refused, with line and reason (pure)."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from schema.canonical import digest
from schema.job import Test
from schema.record import Sample

NOISY = 0.10
"""Spread over mean from which a rate is doubtful."""

Severity = Literal["damaged", "void", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenModel:
    """The model as the file names it, None where it does not; a table prints sizes with two decimals only."""

    model_type: str | None = None
    filename: str | None = None
    model_size: int | None = None
    model_n_params: int | None = None
    printed_size: str | None = None
    printed_params: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result as the file gives it; what the file does not say is None, or missing in `settings`.

    `line` is where it begins, from 1 (in a database: the row of `table`), `raw` its text there. Rates are tokens per
    second, times nanoseconds. `settings` has the names and values of `schema.settings.Settings`; `extras` what has no
    place there, by its name in the file. `doubts` are sentences for people; a quality is nobody's to give.
    """

    format: str
    line: int
    raw: str
    test: Test
    avg_ts: float
    stddev_ts: float | None = None
    avg_ns: int | None = None
    stddev_ns: int | None = None
    samples_ns: tuple[int, ...] = ()
    samples_ts: tuple[float, ...] = ()
    settings: dict[str, int | str] = field(default_factory=dict)
    model: GivenModel = GivenModel()
    build_commit: str | None = None
    build_number: int | None = None
    cpu_info: str | None = None
    gpu_info: str | None = None
    backends: str | None = None
    tested_at: str | None = None
    extras: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    table: str = ""
    occurrence: int = 0

    @property
    def repetitions(self) -> int | None:
        """How often the test was repeated; None where the file keeps no samples."""
        return len(self.samples_ns) or None

    @property
    def spread_ts(self) -> float | None:
        """The standard deviation; None where it is not known: of one repetition, llama-bench prints 0."""
        return None if self.repetitions == 1 or not self.stddev_ts else self.stddev_ts

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The repetitions as ours are kept; () where the file has none."""
        kind, n_tokens = self.test.kind, self.test.n_tokens
        return tuple(
            Sample(
                repetition=repetition,
                n_tokens=n_tokens,
                elapsed_ns=ns,
                prompt_ns=ns if kind == "pp" else None,
                gen_ns=ns if kind == "tg" else None,
            )
            for repetition, ns in enumerate(self.samples_ns, 1)
        )

    @property
    def import_key(self) -> str:
        """Hash of the row's content, the same in every format that carries all of it, whatever the file's name.

        Without samples (csv and sql have none), the model's path (its letters get damaged), and the place. A row
        without a time that comes again in its file is another repetition, so `occurrence` counts for those.
        """
        model = replace(self.model, filename=None)
        known = (self.build_commit, self.build_number, self.cpu_info, self.gpu_info, self.backends, self.tested_at)
        rates = (self.avg_ts, self.stddev_ts, self.avg_ns, self.stddev_ns)
        content = [self.test.key(), rates, self.settings, _plain(model), known, self.extras]
        return digest(["llama-bench row", 1, content, 0 if self.tested_at else self.occurrence])[:32]

    @property
    def printed_key(self) -> str:
        """Hash of what llama-bench's table prints of any result: model, back end, test and rate with two decimals."""
        model, spread = self.model, 0.0 if self.stddev_ts is None else self.stddev_ts
        size = model.printed_size or printed_size(model.model_size)
        params = model.printed_params or printed_params(model.model_n_params)
        rate = f"{self.avg_ts:.2f} ± {spread:.2f}"
        return digest(["printed row", 1, model.model_type, size, params, self.backends, self.test.key(), rate])[:32]

    @property
    def timed_key(self) -> str | None:
        """Hash of when the test ran and how long it took; None where the file does not say. No two results share it."""
        if self.tested_at is None or self.avg_ns is None:
            return None
        return digest(["timed row", 1, self.test.key(), self.tested_at, self.avg_ns])[:32]

    @property
    def n_facts(self) -> int:
        """How much the file says of the result: of two forms of it, the one with more is the one to keep."""
        model = self.model
        told = (
            *(model.model_type, model.filename, model.model_size or model.printed_size),
            *(model.model_n_params or model.printed_params, self.build_commit, self.build_number, self.cpu_info),
            *(self.gpu_info, self.backends, self.tested_at, self.avg_ns, self.stddev_ns, self.stddev_ts),
        )
        return sum(fact is not None for fact in told) + len(self.settings) + len(self.extras) + bool(self.samples_ns)


def _plain(model: GivenModel) -> list[Any]:
    return [model.model_type, model.model_size, model.model_n_params, model.printed_size, model.printed_params]


def printed_size(n_bytes: int | None) -> str | None:
    """Return bytes as llama-bench's table prints them."""
    if n_bytes is None:
        return None
    return f"{n_bytes / 2**20:.2f} MiB" if n_bytes < 2**30 else f"{n_bytes / 2**30:.2f} GiB"


def printed_params(number: int | None) -> str | None:
    """Return a number of parameters as llama-bench's table prints it."""
    if number is None:
        return None
    return f"{number / 1e6:.2f} M" if number < 10**9 else f"{number / 1e9:.2f} B"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Something that was not taken: its line (0: the file as a whole), why, and its text.

    `damaged` is a piece of llama-bench's output that cannot be trusted, `void` a result without a rate,
    `foreign` what looks like results but is not llama-bench's own form. The first alone stops a file.
    """

    line: int
    reason: str
    raw: str = ""
    severity: Severity = "damaged"


class RefusedError(Exception):
    """A row that the file does not justify; the text is the reason."""

    def __init__(self, reason: str, severity: Severity = "damaged") -> None:
        self.severity: Severity = severity
        super().__init__(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a file gives: the rows that may be imported, what was refused, and remarks on the file.

    `held` counts good rows that are kept back since something else in the file is damaged. `again` are the lines of
    rows that an earlier line has already, with the same time. `incomplete` says that the run did not end as it should.
    """

    name: str
    rows: tuple[Row, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    n_refused: int = 0
    held: int = 0
    again: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    incomplete: bool = False

    @property
    def formats(self) -> tuple[str, ...]:
        """The forms of its rows, each once."""
        return tuple(dict.fromkeys(row.format for row in self.rows))


@dataclass(slots=True)
class Part:
    """What the reader of one form found; `lines` are those that it has an opinion on."""

    rows: list[Row] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    incomplete: bool = False
    notes: list[str] = field(default_factory=list)

    def refuse(self, line: int, reason: str, raw: str = "", severity: Severity = "damaged") -> None:
        """Note a refusal."""
        self.lines.add(line)
        self.refusals.append(Refusal(line=line, reason=reason, raw=raw[:RAW_CHARACTERS], severity=severity))

    def take(self, row: Row) -> None:
        """Note a row."""
        self.lines.add(row.line)
        self.rows.append(row)


RAW_CHARACTERS = 4000
"""Characters of a refused text that are kept."""
