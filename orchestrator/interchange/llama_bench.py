"""A command line of llama-bench as a sweep: the same tests, models and settings, each once (pure)."""

import difflib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.interchange.llama_bench_options import (
    BY_NAME,
    IGNORED,
    REFUSED,
    Option,
    Piece,
    Value,
    known,
    pieces,
)
from schema.errors import UsageError
from schema.settings import Settings
from schema.sweep import MMAP, READERS, Sweep, parse_sweep
from schema.sweep_tests import MAX_TOKENS
from schema.sweep_values import BadValueError, whole_number
from schema.yaml_file import Scalar

DEFAULT_MODEL = "models/7B/ggml-model-q4_0.gguf"
MAX_NAME = 100
Values = dict[str, list[Value]]
"""What was given, by its place in a sweep file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """The sweep that a command line asks for, the file that says the same, and remarks for the person."""

    text: str
    sweep: Sweep
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Given:
    values: Values = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def translate(arguments: Sequence[str], base: Path) -> Translated:
    """Return what the `arguments` of llama-bench ask for; relative model paths start at `base`.

    A value that comes twice is kept once, with a note. Raises UsageError naming each option that is
    refused or unknown, or the value that cannot be meant; SweepError where it all is more than a sweep takes.
    """
    given = _read(arguments)
    _complete(given)
    notes = [*given.notes, *_without_doubles(given.values)]
    if not any(given.values.get(f"tests.{key}") for key in ("n_prompt", "n_gen", "pg")):
        raise UsageError("With no prompt token and no generated token there is nothing to measure.")
    text = _as_yaml(given.values)
    return Translated(text=text, sweep=parse_sweep(text, "command line", base), notes=tuple(notes))


def _read(arguments: Sequence[str]) -> _Given:
    given = _Given()
    after_unknown = False
    for piece in pieces(arguments, {}):
        if piece.name in BY_NAME:
            try:
                _take(given, BY_NAME[piece.name], piece)
            except (ValueError, BadValueError) as error:
                given.refused.append(_faulty(piece, str(error)))
        elif piece.name in IGNORED:
            given.notes.append(f"`{piece.name}` changes nothing here: {IGNORED[piece.name]}.")
        elif piece.name in REFUSED:
            given.refused.append(f"`{piece.name}` is refused: {REFUSED[piece.name][0]}.")
        elif piece.name.startswith("-") or not after_unknown:  # else it is the value of that option
            given.refused.append(_unknown(piece.name))
        after_unknown = not known(piece.name)
    if given.refused:
        raise UsageError("\n".join(dict.fromkeys(given.refused)))
    return given


def _take(given: _Given, option: Option, piece: Piece) -> None:
    """Note the values of one option; raises ValueError or BadValueError where they cannot be meant."""
    if piece.value is None:
        raise ValueError("it needs a value")
    values = option.read(piece.value)
    for value in values:
        _check(option.key, value)
    if option.replaces:
        given.values[option.key] = values
    else:
        given.values.setdefault(option.key, []).extend(values)
    if option.key == "params.tensor_split" and re.fullmatch(r"[0-9.]+(,[0-9.]+)+", piece.value):
        shares = piece.value.replace(",", "/")
        note = f"`{piece.value}` with a comma means more runs; a slash, `{shares}`, means shares of one run."
        given.notes.append(note)


def _check(key: str, value: Value) -> None:
    """Raise BadValueError where a sweep file cannot hold `value` at `key`."""
    level, _, name = key.partition(".")
    if level == "tests":
        for count in value if isinstance(value, tuple) else (value,):
            whole_number(Scalar(0, str(count)), 0, MAX_TOKENS)
    elif name in READERS:
        READERS[name](Scalar(0, str(value)))
    elif key == "repeat":
        whole_number(Scalar(0, str(value)), 1, 1000)


def _faulty(piece: Piece, why: str) -> str:
    value = piece.value or ""
    shown = f"{piece.name} {value if len(value) <= 40 else value[:40] + '…'}".rstrip()
    return f"`{shown}` cannot be meant: {why.rstrip('.')}."


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name[:40], [*BY_NAME, *REFUSED, *IGNORED], n=1, cutoff=0.7)
    meant = f"; the nearest is `{near[0]}`" if near else ""
    return f"llama-bench has no option `{name if len(name) <= 40 else name[:40] + '…'}`{meant}."


def _complete(given: _Given) -> None:
    """Put llama-bench's defaults where a sweep file has others, and each value where a sweep file has it."""
    values = given.values
    if "models" not in values:
        given.notes.append(f"Without -m this takes llama-bench's default, {DEFAULT_MODEL}.")
        values["models"] = [DEFAULT_MODEL]
    prompts, gens = values.get("tests.n_prompt", [512]), values.get("tests.n_gen", [128])
    pairs = [pair for pair in values.get("tests.pg", []) if isinstance(pair, tuple)]
    values["tests.n_prompt"] = [n for n in [*prompts, *(first for first, second in pairs if not second)] if n]
    values["tests.n_gen"] = [n for n in [*gens, *(second for first, second in pairs if not first)] if n]
    values["tests.pg"] = [pair for pair in pairs if all(pair)]
    modes = [*values.get("params.load_mode", []), *_older_load_modes(values)]
    if modes:
        values["params.load_mode"] = modes


def _older_load_modes(values: Values) -> list[Value]:
    """Return what `-mmp` and `-dio` of older versions mean: direct I/O comes before mmap, which was the default."""
    mmap, dio = values.pop("params.mmap", []), values.pop("params.dio", [])
    if not mmap and not dio:
        return []
    mapped = [MMAP[str(value)] for value in mmap or ["on"]]
    modes = [mode for direct in dio or ["off"] for mode in (["dio"] if direct == "on" else mapped)]
    return [*dict.fromkeys(modes)]


def _without_doubles(values: Values) -> Iterator[str]:
    """Keep each value once, and yield a note for each option where one came again."""
    for key, found in values.items():
        kept: dict[Value, Value] = {}
        for value in found:
            kept.setdefault(os.path.normpath(str(value)) if key == "models" else value, value)
        values[key] = list(kept.values())
        again = Counter(found) - Counter(values[key])
        if again:
            listed = ", ".join(_shown(value) for value in again)
            yield f"`{_option(key)}` has {listed} more than once; it is measured once, and -r repeats it."


def _option(key: str) -> str:
    return next(option.names[0] for option in BY_NAME.values() if option.key == key)


def _shown(value: Value) -> str:
    return f"{value[0]},{value[1]}" if isinstance(value, tuple) else str(value)


def _as_yaml(values: Values) -> str:
    models = [str(model) for model in values["models"]]
    lines = [f"name: {_quoted((Path(models[0]).stem or 'sweep')[:MAX_NAME])}", "models:"]
    lines += [f"  - path: {_quoted(model)}" for model in models]
    lines.append(_section("tests", ("n_prompt", "n_gen", "pg", "n_depth"), values))
    params = [name for name in Settings.__dataclass_fields__ if values.get(f"params.{name}")]
    if params:
        lines.append(_section("params", params, values))
    lines += [f"repeat: {count}" for count in values.get("repeat", [])]
    return "\n".join(lines) + "\n"


def _section(level: str, keys: Iterable[str], values: Values) -> str:
    lists = ((key, values.get(f"{level}.{key}")) for key in keys)
    return f"{level}: {{{', '.join(f'{key}: [{_joined(found)}]' for key, found in lists if found)}}}"


def _joined(values: Iterable[Value]) -> str:
    return ", ".join(f"[{value[0]}, {value[1]}]" if isinstance(value, tuple) else _plain(value) for value in values)


def _plain(value: int | str) -> str:
    """Return a word or number as it is, and in quotes what YAML might read otherwise."""
    text = str(value)
    return text if all(mark.isalnum() or mark in "_./+" for mark in text) else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
