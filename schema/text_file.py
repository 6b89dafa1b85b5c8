"""A small text file that a person wrote, read whole or refused with what it is instead."""

import difflib
from pathlib import Path

from schema.errors import SweepError
from schema.problem import show, show_name

MAX_BYTES = 1 << 20


def read_text(path: Path, noun: str = "sweep") -> str:
    """Return the file's text; SweepError says what it is instead, or which file has a similar name."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        fault = f"there is no such file.{_neighbour(path)}"
    except IsADirectoryError:
        fault = f"this is a directory; name the {noun} file inside it."
    except (OSError, ValueError) as error:
        fault = f"the file cannot be read: {getattr(error, 'strerror', None) or error}."
    else:
        if len(data) <= MAX_BYTES:
            return decode_utf8(data, str(path))
        fault = f"the file is larger than 1 MiB, so it is no {noun}; name the YAML file."
    raise SweepError([f"{show_name(str(path))}: {fault}"])


def _neighbour(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f" Its directory {show(str(path.parent))} does not exist or is closed to us."
    near = difflib.get_close_matches(path.name, names, n=1)
    return f" The nearest name in its directory is {show(near[0])}." if near else ""


def decode_utf8(data: bytes, filename: str) -> str:
    """Return `data` as text without a byte order mark; SweepError names the line that is not UTF-8."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SweepError([f"{show_name(filename)}: the file is UTF-16; save it as UTF-8."])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        text = f"the byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8."
        raise SweepError([f"{show_name(filename)}:{line}: {text}"]) from None
