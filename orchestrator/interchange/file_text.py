"""The bytes of a file as text: UTF-8, UTF-16 as PowerShell writes it, or Latin-1, with a remark where it matters."""

import re
from dataclasses import dataclass

_ENDS = re.compile(r"\r\n|\n|\r")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")
SQLITE = b"SQLite format 3\0"
HEAD = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A file's text and its lines; `damage` is (line, reason) of bytes that are none, or None."""

    text: str
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()
    damage: tuple[int, str] | None = None


def decode(raw: bytes) -> FileText | None:
    """Return `raw` as text; None where it is not text at all."""
    encoding = _sixteen(raw)
    if encoding:
        return _utf16(raw, encoding)
    if b"\0" in raw[:HEAD]:
        return None
    try:
        return _made(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        note = f"byte {error.start} is not UTF-8, so the file was read as Latin-1: letters beyond ASCII may be others"
        return _made(_one_byte_each(raw.removeprefix(b"\xef\xbb\xbf")), (note,))


def _one_byte_each(raw: bytes) -> str:
    try:
        return raw.decode("cp1252")  # what Windows takes Latin-1 to be
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _sixteen(raw: bytes) -> str | None:
    if raw.startswith(b"\xff\xfe"):
        return "utf-16-le"
    if raw.startswith(b"\xfe\xff"):
        return "utf-16-be"
    head = raw[:HEAD]
    if len(head) >= 16 and not raw.startswith(SQLITE):
        for encoding, zeros, letters in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
            if zeros.count(0) > 0.8 * len(zeros) and letters.count(0) < 0.05 * len(letters):
                return encoding
    return None


def _utf16(raw: bytes, encoding: str) -> FileText:
    note = ("the file is UTF-16",)
    try:
        return _made(raw.decode(encoding).removeprefix("﻿"), note)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode(encoding, "replace")
        line = len(_ENDS.findall(before)) + 1
        text = raw.decode(encoding, "replace").removeprefix("﻿")
        return _made(text, note, (line, f"byte {error.start} is not UTF-16: the text is cut off or mixed with another"))


def _made(text: str, notes: tuple[str, ...] = (), damage: tuple[int, str] | None = None) -> FileText:
    text = _ENDS.sub("\n", _ESCAPES.sub("", text))
    return FileText(text=text, lines=tuple(text.split("\n")), notes=notes, damage=damage)
