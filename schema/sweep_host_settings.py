"""The `host_settings:` of a sweep: what a host's admin lets be set, as an axis like `env` (stdlib only)."""

import itertools
import re

from schema.problem import show
from schema.sweep_reader import Reader, kind
from schema.sweep_values import BadValueError
from schema.yaml_file import Entry, Mapping, Scalar

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
VALUE = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?|[A-Za-z0-9_][A-Za-z0-9_.+:-]{0,63}")
"""What may become a word of a command: never the beginning of an option, never more than one word."""

MAX_COMBINATIONS = 1000


def host_settings(reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
    """Return `{"host_settings": …}` with one text (as in `Settings.host_settings`) for each combination, else {}."""
    if entry is None:
        return {}
    if not isinstance(entry.value, Mapping):
        text = f"{kind(entry.value)} stands where settings belong; write `host_settings: {{gpu_power_w: [250, 350]}}`."
        reader.fault(entry.line, "host_settings", text)
        return {}
    axes = []
    for setting in sorted(entry.value.entries, key=lambda each: each.key):
        if not NAME.fullmatch(setting.key):
            text = f"{show(setting.key)} cannot name a setting; write small letters, such as gpu_power_w."
            reader.fault(setting.line, f"host_settings.{setting.key}", text)
        values = reader.list_of(setting, f"host_settings.{setting.key}", _value)
        axes.append([f"{setting.key}={value}" for value in values])
    count = 1
    for axis in axes:
        count *= max(1, len(axis))
    if count > MAX_COMBINATIONS:
        text = f"these are {count} combinations; write at most {MAX_COMBINATIONS}."
        reader.fault(entry.line, "host_settings", text)
        return {}
    return {"host_settings": tuple(" ".join(pairs) for pairs in itertools.product(*axes))} if axes else {}


def _value(scalar: Scalar) -> str:
    if scalar.is_null:
        raise BadValueError("there is no value; write a number or a word.")
    if not VALUE.fullmatch(scalar.text):
        raise BadValueError(f"{show(scalar.text)} is no value of a host's setting; write a number or one word.")
    return scalar.text
