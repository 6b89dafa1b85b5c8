"""The `host_settings:` of a sweep: what a host's admin lets be set, as an axis like `env` (stdlib only)."""

import re

from schema.problem import show
from schema.sweep_axes import Axes
from schema.sweep_reader import Reader
from schema.sweep_values import BadValueError
from schema.yaml_file import Entry, Scalar

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
VALUE = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,6})?|[A-Za-z0-9_][A-Za-z0-9_.+:-]{0,63}")
"""What may become a word of a command: never the beginning of an option, never more than one word."""


def host_settings(reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
    """Return `{"host_settings": …}` with one text (as in `Settings.host_settings`) for each combination, else {}."""
    example = "{gpu_power_w: [250, 350]}"
    return Axes(key="host_settings", things="settings", example=example, refuse=_refusal, value=_value).read(
        reader, entry
    )


def _refusal(name: str) -> str | None:
    return (
        None
        if NAME.fullmatch(name)
        else f"{show(name)} cannot name a setting; write small letters, such as gpu_power_w."
    )


def _value(scalar: Scalar) -> str:
    if scalar.is_null:
        raise BadValueError("there is no value; write a number or a word.")
    if not VALUE.fullmatch(scalar.text):
        raise BadValueError(f"{show(scalar.text)} is no value of a host's setting; write a number or one word.")
    return scalar.text
