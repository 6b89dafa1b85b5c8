"""The `env:` of a sweep: variables of the measuring process as an axis, from an allow-list (stdlib only)."""

import re

from schema.problem import show
from schema.settings import ENGINE_VARIABLES
from schema.sweep_axes import Axes
from schema.sweep_reader import Reader
from schema.sweep_values import BadValueError
from schema.yaml_file import Entry, Scalar

ALLOWED = re.compile(
    rf"({ENGINE_VARIABLES})_[A-Z0-9_]{{1,80}}"
    r"|OMP_(PROC_BIND|PLACES|WAIT_POLICY|DYNAMIC)|GOMP_(SPINCOUNT|CPU_AFFINITY)|KMP_(AFFINITY|BLOCKTIME)"
)
"""Variables that llama.cpp, its back ends and OpenMP read; none of them names a program or a library to run."""


def environments(reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
    """Return `{"env": …}` with one text (as in `Settings.env`) for each combination of the values; {} where none is."""
    axes = Axes(key="env", things="variables", example="{NAME: [0, 1]}", refuse=_refusal, value=_value)
    return axes.read(reader, entry)


def _refusal(name: str) -> str | None:
    if ALLOWED.fullmatch(name):
        return None
    return f"{show(name)} may not be set here; variables of llama.cpp, of its back ends and OpenMP may."


def _value(scalar: Scalar) -> str:
    if scalar.is_null and not scalar.text:
        raise BadValueError("there is no value; write a number or a text.")
    if not re.fullmatch(r"[!-~]{0,200}", scalar.text):
        raise BadValueError(f"{show(scalar.text)} has blanks or other characters that this cannot hold.")
    return scalar.text
