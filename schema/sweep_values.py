"""What one text of a sweep file means: a number, a switch, a choice, a length of time, or a plain text (stdlib only).

Each function takes the text as it was written and returns its value, or raises BadValueError with what
to write instead. Nothing is converted silently: `1_000`, `0777`, `1e3`, `12:30` and `2026-11-30` are
answered with the plain number where there is one.
"""

import difflib
import math
import re
from collections.abc import Sequence

from schema.problem import show
from schema.yaml_file import Scalar

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_DURATION = re.compile(r"([0-9]{1,9})([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MAX_TIMEOUT_SECONDS = 7 * 24 * 3600
MAX_FORMED = 1000
_ON = ("on", "true", "yes")
_OFF = ("off", "false", "no")


class BadValueError(Exception):
    """The text is no such value; str() says what to write, as the end of a sentence about the key."""


def whole_number(scalar: Scalar, low: int, high: int, words: Sequence[str] = ()) -> int | str:
    """Return the number from `low` to `high` that is written, or the one of `words` (any case)."""
    wanted = " or ".join([f"a whole number from {low} to {high}", *(f"`{word}`" for word in words)])
    text = scalar.text
    if scalar.is_null:
        raise BadValueError(f"there is no value; write {wanted}, or leave the key out.")
    if text.lower() in words:
        return text.lower()
    if scalar.quoted:
        unquoted = f"write {text} without quotes" if _WHOLE.fullmatch(text) else f"write {wanted}"
        raise BadValueError(f"{show(text)} is a text because of its quotes; {unquoted}.")
    if not _WHOLE.fullmatch(text):
        raise BadValueError(f"{show(text)} {_instead(text) or f'is not a whole number; write {wanted}'}.")
    if len(text) > 18 or not low <= int(text) <= high:
        raise BadValueError(f"{text if len(text) < 40 else show(text)} is out of range; write {wanted}.")
    return int(text)


def _instead(text: str) -> str | None:
    """Return what `text` is instead of a plain whole number and what to write, or None."""
    if len(text) > 40:
        return None
    for pattern, answer in _LOOKS_LIKE:
        if re.fullmatch(pattern, text, re.IGNORECASE):
            return answer
    return _number_instead(text)


_LOOKS_LIKE = (
    (r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*", "is a date; a whole number is needed"),
    (r"[+-]?[0-9]+(:[0-9]+)+(\.[0-9]*)?", "is a time of day, or a number to base 60; write the number in plain digits"),
    (r"[+-]?\.?(inf|nan|infinity)", "is not a whole number; write the number in plain digits"),
    (r"true|false|on|off|yes|no|y|n", "is a switch; a whole number is needed"),
    (r"[0-9]+((\s*,\s*|\s+)[0-9]+)+", "is one text; write a list with brackets, such as [512, 1024]"),
    (r"[0-9]+\s*(-|\.\.+)\s*[0-9]+([+*][0-9]+)?", "is a range; write the numbers as a list, such as [512, 1024]"),
)


def _number_instead(text: str) -> str | None:
    digits = text.replace("_", "").replace(" ", "").lstrip("+").lower()
    if re.fullmatch(r"0[0-7]+", digits):
        return f"may be read as octal; write {int(digits)}, or {int(digits, 8)} if octal was meant"
    based = re.fullmatch(r"0([xob])([0-9a-f]+)", digits)
    if based:
        return _based(based.group(1), based.group(2))
    if _WHOLE.fullmatch(digits.lstrip("0") or "0"):
        return f"is not written plainly; write {int(digits)}"
    unit = re.fullmatch(r"([0-9]{1,9})(k|m)i?b?", digits)
    if unit:
        return f"has a unit; write {int(unit.group(1)) * (1024 if unit.group(2) == 'k' else 1024**2)}"
    return _fraction(digits)


def _based(base: str, digits: str) -> str | None:
    try:
        return f"is not written to base 10; write {int(digits, {'x': 16, 'o': 8, 'b': 2}[base])}"
    except ValueError:
        return None


def _fraction(digits: str) -> str | None:
    if not re.fullmatch(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,4})?", digits):
        return None
    value = float(digits)
    if not math.isfinite(value) or abs(value) >= 1e15:
        return "is not a whole number in range; write it in plain digits"
    if value != int(value):
        return "has a fraction; a whole number is needed"
    return f"is written with a point or an exponent; write {int(value)}"


def switch(scalar: Scalar) -> str:
    """Return `on`, `off` or `auto`; yes, no, true and false are understood in any case, numbers are not."""
    word = scalar.text.lower()
    if scalar.is_null:
        raise BadValueError("there is no value; write on, off or auto, or leave the key out.")
    if word in _ON:
        return "on"
    if word in _OFF:
        return "off"
    if word == "auto":
        return "auto"
    plain = {"1": "on", "0": "off", "-1": "auto", "enabled": "on", "disabled": "off", "y": "on", "n": "off"}
    raise BadValueError(f"{show(scalar.text)} is no switch; write {plain.get(word, 'on, off or auto')}.")


def plain_switch(scalar: Scalar) -> str:
    """Return `on` or `off`, as `switch` does; there is no `auto`."""
    value = switch(scalar)
    if value == "auto":
        raise BadValueError("auto is not a choice here; write on or off.")
    return value


def cpu_mask(scalar: Scalar) -> str:
    """Return the mask of CPUs as `0x` and lower-case digits without leading zeros; 0x0 means no mask."""
    text = scalar.text.lower()
    if not re.fullmatch(r"0x[0-9a-f]{1,128}", text):
        raise BadValueError(f"{show(scalar.text)} is no mask of CPUs; write it to base 16, like 0x3 for CPUs 0 and 1.")
    return hex(int(text, 16))


def formed(scalar: Scalar, pattern: str, example: str) -> str:
    """Return the text, which has no blank and matches `pattern` as a whole."""
    if scalar.is_null:
        raise BadValueError(f"there is no value; write it like {example}, or leave the key out.")
    if len(scalar.text) > MAX_FORMED or not re.fullmatch(pattern, scalar.text) or re.search(r"\s", scalar.text):
        raise BadValueError(f"{show(scalar.text)} is not understood; write it like {example}.")
    return scalar.text


def choice(scalar: Scalar, options: Sequence[str]) -> str:
    """Return the option that is written, exactly."""
    if scalar.text in options:
        return scalar.text
    listed = ", ".join(options)
    if scalar.is_null:
        raise BadValueError(f"there is no value; write one of {listed}, or leave the key out.")
    near = difflib.get_close_matches(scalar.text.lower()[:40], options, n=1, cutoff=0.5)
    hint = f"the nearest is {near[0]}, of {listed}" if near else f"write one of {listed}"
    raise BadValueError(f"{show(scalar.text)} is not known; {hint}.")


def seconds(scalar: Scalar) -> float:
    """Return the length of time, written as `90s`, `30m` or `2h`, in seconds."""
    text = scalar.text
    found = _DURATION.fullmatch(text)
    if found:
        value = int(found.group(1)) * _SECONDS[found.group(2)]
        if 1 <= value <= _MAX_TIMEOUT_SECONDS:
            return float(value)
        raise BadValueError(f"{text} is out of range; write a time from 1s to 168h.")
    if re.fullmatch(r"[0-9]{1,9}", text):
        raise BadValueError(f"{text} has no unit; write {text}s for seconds or {text}m for minutes.")
    loose = re.fullmatch(r"([0-9]{1,9})\s*(s|m|h)(|ec|ecs|econds?|in|ins|inutes?|rs?|ours?)\.?", text.lower())
    if loose:
        raise BadValueError(f"{show(text)} is not written plainly; write {loose.group(1)}{loose.group(2)}.")
    raise BadValueError(f"{show(text)} is not a time; write it like 90s, 30m or 2h.")


def plain_text(scalar: Scalar, max_length: int) -> str:
    """Return the text as written: one line, not empty, at most `max_length` characters."""
    if scalar.is_null or not scalar.text.strip():
        raise BadValueError("there is no value; write a text, or leave the key out.")
    if len(scalar.text) > max_length:
        raise BadValueError(f"the text has {len(scalar.text)} characters; write at most {max_length}.")
    if not scalar.text.isprintable():
        raise BadValueError(f"{show(scalar.text)} holds characters that cannot be printed; write one plain line.")
    return scalar.text
