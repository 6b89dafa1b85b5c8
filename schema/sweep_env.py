"""The `env:` of a sweep: variables of the measuring process as an axis, from an allow-list (stdlib only)."""

import itertools
import re

from schema.problem import show
from schema.settings import ENGINE_VARIABLES
from schema.sweep_reader import Reader, kind
from schema.sweep_values import BadValueError
from schema.yaml_file import Entry, Mapping, Scalar

ALLOWED = re.compile(
    rf"({ENGINE_VARIABLES})_[A-Z0-9_]{{1,80}}"
    r"|OMP_(PROC_BIND|PLACES|WAIT_POLICY|DYNAMIC)|GOMP_(SPINCOUNT|CPU_AFFINITY)|KMP_(AFFINITY|BLOCKTIME)"
)
"""Variables that llama.cpp, its back ends and OpenMP read; none of them names a program or a library to run."""

MAX_ENVIRONMENTS = 1000


def environments(reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
    """Return `{"env": …}` with one text (as in `Settings.env`) for each combination of the values; {} where none is."""
    if entry is None:
        return {}
    if not isinstance(entry.value, Mapping):
        text = f"{kind(entry.value)} stands where variables belong; write `env: {{NAME: [0, 1]}}`."
        reader.fault(entry.line, "env", text)
        return {}
    axes = []
    for variable in sorted(entry.value.entries, key=lambda each: each.key):
        if not ALLOWED.fullmatch(variable.key):
            text = f"{show(variable.key)} may not be set here; variables of llama.cpp, of its back ends and OpenMP may."
            reader.fault(variable.line, f"env.{variable.key}", text)
        values = reader.list_of(variable, f"env.{variable.key}", _value)
        axes.append([f"{variable.key}={value}" for value in values])
    count = 1
    for axis in axes:
        count *= max(1, len(axis))
    if count > MAX_ENVIRONMENTS:
        reader.fault(entry.line, "env", f"these are {count} combinations; write at most {MAX_ENVIRONMENTS}.")
        return {}
    return {"env": tuple(" ".join(pairs) for pairs in itertools.product(*axes))} if axes else {}


def _value(scalar: Scalar) -> str:
    if scalar.is_null and not scalar.text:
        raise BadValueError("there is no value; write a number or a text.")
    if not re.fullmatch(r"[!-~]{0,200}", scalar.text):
        raise BadValueError(f"{show(scalar.text)} has blanks or other characters that this cannot hold.")
    return scalar.text
