"""One row of llama-bench's tables: its cells by the columns of its table (pure)."""

import re

from orchestrator.interchange.bench_row import row_of
from orchestrator.interchange.found import RefusedError, Row

MOST_CHARACTERS = 20_000
MOST_OF_A_RATE = 100
OVERRIDES = "tensor_buft_overrides"

_SPLIT = re.compile(r"(?<!\\)\|")
_TEST = re.compile(r"(?:pp ?([0-9]{1,10}))?(\+)?(?:tg ?([0-9]{1,10}))?(?: ?@ ?d([0-9]{1,10}))?")
_RATE = re.compile(r"(\S+) ?(?:±|Â±|┬▒|В±|ﾂｱ|\+/-|\+-|�{1,2}) ?(\S+?)(?: ?(?:t/s|tok/s|tokens/s))?")
_TWO_PLACES = re.compile(r"-?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)\.[0-9]{2}")
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\([a-z0-9]*\))?|inf)", re.IGNORECASE)
_SIZE = re.compile(r"[0-9]{1,12}\.[0-9]{2} [KMGT]iB")
_PARAMS = re.compile(r"[0-9]{1,12}\.[0-9]{2} [KMBT]")


def cells_of(text: str) -> list[str]:
    """Return what stands between the bars; emphasis around a whole cell is taken off."""
    cells = _SPLIT.split(text.removeprefix("|").removesuffix("|"))
    return [_plain(cell.strip()) for cell in cells]


def _plain(cell: str) -> str:
    for mark in ("**", "__", "`", "*") if cell[:1] in "*_`" else ():
        if len(cell) > 2 * len(mark) and cell.startswith(mark) and cell.endswith(mark):
            cell = cell[len(mark) : -len(mark)].strip()
    return cell.replace("\\|", "|")


def table_row(text: str, line: int, columns: tuple[str, ...], raw: str) -> Row:
    """Return the row that `text` is below the header `columns`; RefusedError says what is wrong with it."""
    if len(text) > MOST_CHARACTERS:
        raise RefusedError("the line is too long for a row")
    if not text.startswith("|") or not text.endswith("|") or text.endswith("\\|"):
        raise RefusedError("the row does not begin and end with a bar: it is cut off or wrapped")
    named = dict(zip(columns, _fitted(cells_of(text), columns), strict=True))
    size, params = named.pop("size", None), named.pop("params", None)
    _check_size(size, params)
    cells = _test(named.pop("test")) | _rate(named.pop("t/s"))
    cells |= {name: value for name, value in named.items() if value}
    return row_of(cells, form="md", line=line, raw=raw, printed=(size, params))


def _fitted(cells: list[str], columns: tuple[str, ...]) -> list[str]:
    """Return one cell for each column: bars that are too many belong to the overrides, and to nothing else."""
    surplus = len(cells) - len(columns)
    if surplus == 0:
        return cells
    if surplus < 0 or OVERRIDES not in columns:
        raise RefusedError(f"the header has {len(columns)} columns, the row {len(cells)} cells")
    first = columns.index(OVERRIDES)
    pieces = cells[first : first + surplus + 1]
    overrides = "|".join(pieces)
    if "=" not in overrides or not all(_is_open("|".join(pieces[:number])) for number in range(1, len(pieces))):
        raise RefusedError(f"the header has {len(columns)} columns, the row {len(cells)} cells")
    return [*cells[:first], overrides, *cells[first + surplus + 1 :]]


def _is_open(pattern: str) -> bool:
    """Say whether a bracket of the regular expression is open at its end, so that a bar there may be part of it."""
    bare = re.sub(r"\\.", "", pattern)
    return bare.count("(") > bare.count(")") or bare.count("[") > bare.count("]")


def _check_size(size: str | None, params: str | None) -> None:
    if size is not None and not _SIZE.fullmatch(size):
        raise RefusedError(f"size: {size!r:.60} is not a size such as 3.56 GiB")
    if params is not None and not _PARAMS.fullmatch(params):
        raise RefusedError(f"params: {params!r:.60} is not a number of parameters such as 6.74 B")


def _test(text: str) -> dict[str, str]:
    match = _TEST.fullmatch(text)
    if match is None or not (match[1] or match[3]) or bool(match[2]) != bool(match[1] and match[3]):
        raise RefusedError(f"test: {text!r:.60} is no test such as pp512, tg128 @ d4096 or pp512+tg128")
    return {"n_prompt": match[1] or "0", "n_gen": match[3] or "0", "n_depth": match[4] or "0"}


def _rate(text: str) -> dict[str, str]:
    match = _RATE.fullmatch(text) if len(text) <= MOST_OF_A_RATE else None
    parts = match.groups() if match else ("", "")
    if not all(_TWO_PLACES.fullmatch(part) or _NOT_FINITE.fullmatch(part) for part in parts):
        raise RefusedError(f"t/s: {text!r:.60} is not a rate as llama-bench writes it, such as 61.30 ± 0.12")
    return {"avg_ts": parts[0], "stddev_ts": parts[1]}
