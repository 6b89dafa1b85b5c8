"""llama-bench's options, which people type out of habit: their names in a sweep file, and the file they make (pure)."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema.errors import UsageError

LARGEST = 2**31 - 1
MOST_VALUES = 100
RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?")


@dataclass(frozen=True, slots=True)
class Habit:
    """What to tell the person (at most two lines), and the sweep file that means the same where there is one."""

    text: str
    sweep: str | None


def numbers(value: str) -> list[int]:
    """Return the numbers of a list or range as llama-bench writes them: `512,1024`, `128-512*2`, `1-4+1`.

    Raises ValueError where `value` is neither.
    """
    found: list[int] = []
    for part in value.split(","):
        match = RANGE.fullmatch(part)
        if match is None or len(part) > 40:
            raise ValueError(f"a count is a whole number from 0 to {LARGEST}")
        first, last = int(match[1]), int(match[2] or match[1])
        sign, step = match[3] or "+", int(match[4] or 1)
        while first <= last and len(found) <= MOST_VALUES:
            found.append(first)
            following = first * step if sign == "*" else first + step
            first = following if following > first else last + 1
    if not found or max(found) > LARGEST:
        raise ValueError(f"a count is a whole number from 0 to {LARGEST}")
    if len(found) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values")
    return found


def _switches(value: str) -> list[Any]:
    return [{"1": "on", "0": "off"}.get(part, part) for part in value.split(",")]


def _words(value: str) -> list[Any]:
    return [word for word in value.split(",") if word]


def _layers(value: str) -> list[Any]:
    return ["all" if part in ("-1", "all") or numbers(part)[0] >= 99 else numbers(part)[0] for part in value.split(",")]


def _pairs(value: str) -> list[Any]:
    pair = numbers(value)
    if len(pair) != 2:
        raise ValueError("it needs two counts, as in -pg 512,128")
    return [pair]


def _once(value: str) -> list[Any]:
    count = numbers(value)
    if len(count) != 1 or count[0] == 0:
        raise ValueError("it needs one count, at least 1")
    return count


@dataclass(frozen=True, slots=True)
class _Place:
    names: tuple[str, ...]
    key: str
    read: Callable[[str], list[Any]]


_PLACES = (
    _Place(("-m", "--model"), "models.path", _words),
    _Place(("-p", "--n-prompt"), "tests.n_prompt", numbers),
    _Place(("-n", "--n-gen"), "tests.n_gen", numbers),
    _Place(("-pg",), "tests.pg", _pairs),
    _Place(("-d", "--n-depth"), "tests.n_depth", numbers),
    _Place(("-b", "--batch-size"), "params.n_batch", numbers),
    _Place(("-ub", "--ubatch-size"), "params.n_ubatch", numbers),
    _Place(("-t", "--threads"), "params.n_threads", numbers),
    _Place(("-ctk", "--cache-type-k"), "params.type_k", _words),
    _Place(("-ctv", "--cache-type-v"), "params.type_v", _words),
    _Place(("-ngl", "--n-gpu-layers"), "params.n_gpu_layers", _layers),
    _Place(("-fa", "--flash-attn"), "params.flash_attn", _switches),
    _Place(("-mmp", "--mmap"), "params.mmap", _switches),
    _Place(("-r", "--repetitions", "--repetition", "--repeat"), "repeat", _once),
)
_ABSENT = re.compile(
    "-(C|dev|dio|embd|hff?|mg|ncmoe|nkvo|nopo|oe?|ot|sm|ts)"
    "|--(cpu-mask|cpu-strict|delay|device|main-gpu|numa|output|override-tensor|poll|prio|split-mode|tensor-split)"
)
_BY_NAME = {name: place for place in _PLACES for name in place.names}


def explain(arguments: list[str]) -> Habit | None:
    """Return what these arguments of `run` or `plan` mean here, None where none is llama-bench's.

    Raises UsageError where a value cannot be meant, or nothing is left to measure.
    """
    given, absent, others = _sorted(arguments[1:])
    if not given and not absent:
        return None
    values = _values(given)
    said = ", ".join(f"{name} is {_BY_NAME[name].key}" for name in dict(given)) or "none of them"
    text = f"These are options of llama-bench; a sweep file has them by other names: {said}."
    if others or not values.get("models.path"):
        return Habit("\n".join([text, *_absent(absent)]), None)
    return Habit("\n".join([f"{text} The file is printed here.", *_absent(absent)]), _sweep(values))


def _sorted(arguments: list[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[str]]:
    given: list[tuple[str, str]] = []
    absent: list[tuple[str, str]] = []
    others: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in _BY_NAME or _ABSENT.fullmatch(name):
            value = value if equals else next(rest, "")
            (given if name in _BY_NAME else absent).append((name, value))
        else:
            others.append(argument)
    return given, absent, others


def _values(given: list[tuple[str, str]]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for name, value in given:
        place = _BY_NAME[name]
        try:
            values.setdefault(place.key, []).extend(place.read(value))
        except ValueError as error:
            shown = value if len(value) <= 40 else value[:40] + "…"
            raise UsageError(f"`{name} {shown}` ({place.key} in a sweep file) cannot be meant: {error}.") from error
    for key, default in (("tests.n_prompt", 512), ("tests.n_gen", 128)):
        values[key] = [value for value in values.get(key, [default]) if value != 0]
    values = {place.key: values[place.key] for place in _PLACES if place.key in values}
    if not any(values.get(f"tests.{key}") for key in ("n_prompt", "n_gen", "pg")):
        raise UsageError("With no prompt token and no generated token there is nothing to measure.")
    return values


def _absent(absent: list[tuple[str, str]]) -> list[str]:
    if not absent:
        return []
    text = f"Not in this version, hence left out: {', '.join(dict(absent))}."
    split = next((value for name, value in absent if name in ("-ts", "--tensor-split")), "")
    if "," in split:
        shares = split.replace(",", "/")
        text += (
            f" And `{split}` with a comma means more runs in llama-bench; a slash, `{shares}`, means shares of one run."
        )
    return [text]


def _sweep(values: dict[str, list[Any]]) -> str:
    models = values["models.path"]
    lines = [f"name: {json.dumps(Path(models[0]).stem or 'sweep')}", "models:"]
    lines += [f"  - path: {json.dumps(model)}" for model in models]
    for section in ("tests", "params"):
        keys = {
            key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{section}.") and value
        }
        if keys:
            lines.append(f"{section}: {{{', '.join(f'{key}: {_list(value)}' for key, value in keys.items())}}}")
    lines += [f"repeat: {count}" for count in values.get("repeat", [])[-1:]]
    return "\n".join(lines)


def _list(values: list[Any]) -> str:
    return f"[{', '.join(_list(value) if isinstance(value, list) else str(value) for value in values)}]"
