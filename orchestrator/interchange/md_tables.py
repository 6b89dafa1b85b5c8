"""llama-bench's tables in any text: reports, terminals, quotes (pure).

A table is its header, the line under it, and the rows until its `build:` line; what else is printed between (device
lists, progress) is passed over. A table that has results but is not llama-bench's own form is named and left alone.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.interchange.found import Part, RefusedError
from orchestrator.interchange.md_row import MOST_CHARACTERS, OVERRIDES, cells_of, table_row

MOST_WRAPS = 8
NAMES = {
    "ngl": "n_gpu_layers",
    "sm": "split_mode",
    "mg": "main_gpu",
    "threads": "n_threads",
    "nkvo": "no_kv_offload",
    "fa": "flash_attn",
    "mmap": "use_mmap",
    "dio": "use_direct_io",
    "lm": "load_mode",
    "embd": "embeddings",
    "nopo": "no_op_offload",
    "noh": "no_host",
    "rpk": "repack",
    "dev": "devices",
    "ts": "tensor_split",
    "ot": "tensor_buft_overrides",
    "fitt": "fit_target",
    "fitc": "fit_min_ctx",
    "model": "model_type",
    "backend": "backends",
    "tokens/s": "t/s",
    "tok/s": "t/s",
}
"""What a table calls a field -> the field."""
OWN = ("model_type", "size", "params", "backends", "test", "t/s")
NEEDED = ("model_type", "backends", "test", "t/s")

_QUOTE = re.compile(r"^[\s>]*")
_RULE = re.compile(r"\|(\s*:?-+:?\s*\|)+")
_BUILD = re.compile(r"build: ([0-9a-zA-Z._-]{1,64}) \(([0-9]{1,9})\)")
_RESULT = re.compile(r"(?:pp|tg) ?[0-9]{1,10}\b")
_PRINTED = re.compile(r"(?:```.*|(?:ggml|llama|load|common|gguf|rpc)[\w-]*:.*)?")
"""What may stand between the last row and the build line: nothing, a fence, or what llama.cpp itself prints."""


@dataclass(slots=True)
class _Table:
    columns: tuple[str, ...]
    line: int
    own: bool
    first: int
    build: tuple[str, int] | None = None
    before: tuple[str, int] | None = None
    follows: bool = True


def read_tables(lines: Sequence[str]) -> Part:
    """Return the rows of every table of llama-bench's in `lines`, each with its own table's columns and build."""
    return _Reader(lines).read()


class _Reader:
    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.part = Part()
        self.table: _Table | None = None
        self.build: tuple[str, int] | None = None
        self.orphans = False

    def read(self) -> Part:
        at = 0
        while at < len(self.lines):
            text = _bare(self.lines[at])
            if "|" in text:
                at += self._piped(at, text)
                continue
            self._other(at, text)
            at += 1
        self._close()
        return self.part

    def _piped(self, at: int, text: str) -> int:
        """Take the line `text` at `at`, which has bars; return how many lines it took."""
        columns = _columns(text)
        under = _bare(self.lines[at + 1]) if at + 1 < len(self.lines) else ""
        if _is_rule(under) or len(set(columns) & {*OWN}) >= 3:
            self._open(at, text, columns, under)
            return 2 if _is_rule(under) else 1
        if not text.startswith("|") and not (self.table and self.table.own and _RESULT.search(text)):
            self._other(at, text)
            return 1
        if self.table is None or (self.table.own and self.table.build):
            self._orphan(at, text)
            return 1
        if not self.table.own:
            self.part.lines.add(at + 1)
            return 1
        return self._row(at, self.table)

    def _open(self, at: int, text: str, columns: tuple[str, ...], under: str) -> None:
        self._close()
        line, self.orphans = at + 1, False
        self.part.lines |= {line, line + 1} if _is_rule(under) else {line}
        fault = _fault(text, columns, under)
        own = len({*OWN} & {*columns}) >= 3
        self.table = _Table(columns, line, own and not fault, len(self.part.rows), before=self.build)
        if own:
            self.build = None
        if fault and own:
            self.part.refuse(line, f"this table of llama-bench's is damaged: {fault}", text)
        elif fault and (why := self._foreign(at, columns)):
            self.part.refuse(line, why, text, "foreign")

    def _foreign(self, at: int, columns: tuple[str, ...]) -> str:
        """Return why a table that has results is not taken; "" for one that has none."""
        if "s_pp t/s" in columns:
            return "a table of batched-bench: save its results with --output-format jsonl"
        below = self.lines[at + 2 : at + 4]
        if "test" in columns or any(_RESULT.search(_bare(text)) for text in below if _bare(text).startswith("|")):
            missing = [name for name in NEEDED if name not in columns]
            return f"not a table of llama-bench's own: it has no column {' or '.join(_shown(name) for name in missing)}"
        return ""

    def _orphan(self, at: int, text: str) -> None:
        if _RESULT.search(text) and len(cells_of(text)) >= len(NEEDED):
            self.part.lines.add(at + 1)
            if not self.orphans:
                self.part.refuse(at + 1, "a row of a table whose header is not above it", text)
            self.orphans = True

    def _row(self, at: int, table: _Table) -> int:
        raw, taken = _whole(self.lines, at, table.columns)
        table.follows = True
        try:
            self.part.take(table_row(raw, at + 1, table.columns, "\n".join(self.lines[at : at + taken])))
        except RefusedError as error:
            self.part.refuse(at + 1, str(error), raw, error.severity)
        self.part.lines |= {at + 1 + n for n in range(taken)}
        return taken

    def _other(self, at: int, text: str) -> None:
        """Take a line that is of no table: perhaps the build, of the table right above, or else of the next."""
        build = _BUILD.fullmatch(text.strip("*_` "))
        table = self.table
        if build is None:
            if table is not None and not _PRINTED.fullmatch(text):
                table.follows = False
            return
        found = (build[1], int(build[2]))
        rows = self._rows_of(table)
        if table is not None and rows and table.build is None and table.follows:
            table.build = found
        else:
            self.build = found

    def _rows_of(self, table: _Table | None) -> range:
        """Return where the rows of the last table stand among all."""
        return range(table.first if table is not None and table.own else len(self.part.rows), len(self.part.rows))

    def _close(self) -> None:
        """Give the rows of the table that ends their build."""
        table, rows, self.table = self.table, self._rows_of(self.table), None
        if table is None or not rows:
            return
        build = table.build or table.before
        self.part.incomplete |= build is None
        for at in rows if build else ():
            commit, number = build or (None, None)
            commit = None if commit == "unknown" else commit
            self.part.rows[at] = replace(self.part.rows[at], build_commit=commit, build_number=number)


def _bare(line: str) -> str:
    return line[_QUOTE.match(line).end() :].rstrip()  # type: ignore[union-attr]


def _is_rule(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and bool(_RULE.fullmatch(text))


def _columns(text: str) -> tuple[str, ...]:
    names = [cell.lower() for cell in cells_of(text)] if len(text) <= MOST_CHARACTERS else []
    return tuple(NAMES.get(name, name) for name in names)


def _shown(field_name: str) -> str:
    return {"model_type": "`model`", "backends": "`backend`"}.get(field_name, f"`{field_name}`")


def _fault(text: str, columns: tuple[str, ...], under: str) -> str:
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        return f"it has no column {' or '.join(_shown(name) for name in missing)}"
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        return f"it has the column {_shown(twice[0])} twice"
    if not text.startswith("|") or not text.endswith("|"):
        return "its header does not begin and end with a bar"
    if not _is_rule(under):
        return "the line of dashes is not below its header"
    if len(cells_of(under)) != len(columns):
        return f"its header has {len(columns)} columns, the line below it {len(cells_of(under))}"
    return ""


def _whole(lines: Sequence[str], at: int, columns: tuple[str, ...]) -> tuple[str, int]:
    """Return a row and how many lines it has: one that is wrapped within its overrides goes on until its last bar."""
    text, taken = _bare(lines[at]), 1
    if text.endswith("|") or OVERRIDES not in columns or len(cells_of(text)) <= columns.index(OVERRIDES):
        return text, 1
    while taken <= MOST_WRAPS and at + taken < len(lines):
        following = _bare(lines[at + taken]).lstrip()
        if not following or following.startswith("|"):
            break
        text, taken = text + following, taken + 1
        if following.endswith("|"):
            after = len(columns) - columns.index(OVERRIDES) - 1
            return (text, taken) if len(cells_of(following)) > after else (_bare(lines[at]), 1)
    return _bare(lines[at]), 1
