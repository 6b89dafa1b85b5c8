"""Results as llama-bench's own table, `-o md`: a table a host and build, its columns, widths and build line (pure)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.interchange.bench_output import DEFAULTS, FIELDS, Bench, Value, test_name
from orchestrator.interchange.found import printed_params, printed_size
from orchestrator.tables import escape

SETTINGS = (
    *("n_gpu_layers", "n_cpu_moe", "n_threads", "cpu_mask", "cpu_strict", "poll", "n_batch", "n_ubatch"),
    *("type_k", "type_v", "main_gpu", "split_mode", "no_kv_offload", "flash_attn", "devices", "tensor_split"),
    *("tensor_buft_overrides", "load_mode", "lazy_mode", "embeddings", "no_op_offload", "no_host", "repack"),
    *("fit_target", "fit_min_ctx"),
)
"""Settings in the order of the table's columns (llama-bench.cpp, markdown_printer::print_header)."""

NAMES = {
    "n_gpu_layers": "ngl",
    "split_mode": "sm",
    "n_threads": "threads",
    "no_kv_offload": "nkvo",
    "flash_attn": "fa",
    "load_mode": "lm",
    "embeddings": "embd",
    "no_op_offload": "nopo",
    "no_host": "noh",
    "repack": "rpk",
    "devices": "dev",
    "tensor_split": "ts",
    "tensor_buft_overrides": "ot",
    "fit_target": "fitt",
    "fit_min_ctx": "fitc",
}
"""Field -> its name in the table, where that is another (get_field_display_name)."""

WIDTHS = {
    "model": -30,
    "t/s": 20,
    "size": 10,
    "params": 10,
    "n_gpu_layers": 3,
    "n_threads": 7,
    "n_batch": 7,
    "n_ubatch": 8,
    "type_k": 6,
    "type_v": 6,
    "split_mode": 6,
    "load_mode": 10,
    "flash_attn": 3,
    "devices": -12,
    "test": 15,
    "no_op_offload": 4,
    "no_host": 4,
    "repack": 3,
}
"""Characters of a column, to the left where below zero (get_field_width); others are as wide as their name."""

CPU_LIKE = ("CPU", "BLAS", "ZenDNN")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What all rows of one table have in common."""

    host_uid: str
    host: str
    cpu_info: str
    gpu_info: str
    build_commit: str
    build_number: int
    backends: str


@dataclass(slots=True)
class Columns:
    """Which settings the tables show, learnt by looking at each row once."""

    first: dict[Place, Bench] = field(default_factory=dict)
    shown: dict[Place, set[str]] = field(default_factory=dict)

    def look(self, place: Place, row: Bench) -> None:
        """Take note of the row: a setting is shown where it differs from the first row's, or from the default."""
        first = self.first.setdefault(place, row)
        shown = self.shown.setdefault(place, set())
        shown |= {
            name
            for name in SETTINGS
            if row[name] != first[name] or (name != "n_threads" and row[name] != DEFAULTS[name])
        }

    def of(self, place: Place) -> tuple[str, ...]:
        """Return the columns of the table of `place`."""
        shown = set(self.shown[place])
        if any(word in place.backends for word in CPU_LIKE):
            shown = (shown | {"n_threads"}) - {"n_gpu_layers"}
        else:
            shown.add("n_gpu_layers")
        return ("model", "size", "params", "backend", *(name for name in SETTINGS if name in shown), "test", "t/s")

    @property
    def hosts(self) -> set[str]:
        """The hosts of all rows."""
        return {place.host_uid for place in self.first}


def place_of(row: Mapping[str, object], bench: Bench) -> Place:
    """Return where a row was measured; rows of two places never share a table."""
    return Place(
        host_uid=str(row.get("host_uid") or ""),
        host=str(row.get("host") or "unknown host"),
        cpu_info=str(bench["cpu_info"]),
        gpu_info=str(bench["gpu_info"]),
        build_commit=str(bench["build_commit"]),
        build_number=int(bench["build_number"]),
        backends=str(bench["backends"]),
    )


def tables(rows: Iterable[tuple[Place, Bench]], columns: Columns) -> Iterator[str]:
    """Yield the lines of the tables; rows of a place come one after the other, each in `columns`.

    The host is named above each table where there is more than one: llama-bench's table has no column for it.
    """
    place: Place | None = None
    names: tuple[str, ...] = ()
    for own, row in rows:
        if own != place:
            yield from _foot(place)
            place, names = own, columns.of(own)
            if len(columns.hosts) > 1:
                yield from (_title(own), "")
            yield _line((name, NAMES.get(name, name)) for name in names)
            yield "|" + "".join(f" {'-' * (abs(_width(name)) - 1)}{_side(name)} |" for name in names)
        yield _line((name, _text(name, row)) for name in names)
    yield from _foot(place, last=True)


def _title(place: Place) -> str:
    parts = [place.host, *(part for part in (place.cpu_info, place.gpu_info) if part)]
    return escape(": ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:]))


def _foot(place: Place | None, last: bool = False) -> list[str]:
    if place is None:
        return []
    return ["", f"build: {escape(place.build_commit)} ({place.build_number})"] + ([] if last else [""])


def _line(cells: Iterable[tuple[str, str]]) -> str:
    return "|" + "".join(f" {_padded(text, _width(name))} |" for name, text in cells)


def _padded(text: str, width: int) -> str:
    return text.rjust(width) if width > 0 else text.ljust(-width)


def _width(name: str) -> int:
    if name in WIDTHS:
        return WIDTHS[name]
    width = max(len(name), 10)
    return -width if FIELDS.get(name, str) is str else width


def _side(name: str) -> str:
    return ":" if _width(name) > 0 else "-"


def _text(name: str, row: Bench) -> str:
    if name == "t/s":
        return f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}"
    special: dict[str, Value | None] = {
        "model": row["model_type"],
        "size": printed_size(int(row["model_size"])),
        "params": printed_params(int(row["model_n_params"])),
        "backend": row["backends"],
        "test": test_name(row),
    }
    value = special[name] if name in special else row[name]
    return escape(str(value)).replace("|", "\\|")
