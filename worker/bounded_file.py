"""Reading the front of a file that may lie about itself: bounded in time, in memory and by its end (stdlib only)."""

import os
import time
from pathlib import Path
from typing import IO

from schema.errors import ModelError

MAX_HEADER_BYTES = 16 << 20
"""Of what is read byte by byte; texts and lists that are only skipped do not count."""

READ_SECONDS = 1.5
"""Of processor time. A tokenizer of 262 144 tokens takes a tenth of a second."""

KEPT_ITEMS = 1024
KEPT_BYTES = 1 << 20
ALL_KEPT_ITEMS = 100_000
ALL_KEPT_BYTES = 8 << 20
WINDOW_BYTES = 16 << 10


class BoundedFile:
    """A position in a file; nothing is read or skipped before it is known to be there.

    Every method that reads raises ModelError where the file ends before, and says what was wanted there.
    """

    def __init__(self, path: Path, file: IO[bytes], file_bytes: int) -> None:
        self.path, self.file, self.file_bytes = path, file, file_bytes
        self.at = self.taken = self.strings = self.kept_items = self.kept_bytes = 0
        self.stop_at = time.thread_time() + READ_SECONDS

    @property
    def left(self) -> int:
        """Bytes of the file that come after this position."""
        return self.file_bytes - self.at

    def need(self, n: int, what: str) -> None:
        """Raise ModelError where fewer than `n` bytes are left for `what`."""
        if n > self.left:
            raise ModelError(
                f"{self.path} is damaged or not complete: the file is {self.file_bytes} bytes, {what} needs "
                f"at least {self.at + n}. Download or copy it again."
            )

    def check_time(self) -> None:
        """Raise ModelError where reading has taken too long."""
        if time.thread_time() > self.stop_at:
            raise self.refuse(f"reading its header takes more than {READ_SECONDS} s, longer than any model's")

    def may_keep(self, n_items: int, n_bytes: int) -> bool:
        """Tell whether a value of this size is worth keeping, and count it."""
        if n_items > KEPT_ITEMS or n_bytes > KEPT_BYTES:
            return False
        if self.kept_items + n_items > ALL_KEPT_ITEMS or self.kept_bytes + n_bytes > ALL_KEPT_BYTES:
            return False
        self.kept_items += n_items
        self.kept_bytes += n_bytes
        return True

    def refuse(self, reason: str) -> ModelError:
        """Return the error for a file that is damaged at this position."""
        return ModelError(f"{self.path} is damaged: {reason} (at byte {self.at}). Download or copy it again.")

    def shorter(self) -> ModelError:
        """Return the error for a file that was cut after it was opened."""
        return ModelError(f"{self.path} became shorter while it was read. Try again when it is complete.")

    def take(self, n: int, what: str) -> bytes:
        """Return the next `n` bytes."""
        self.need(n, what)
        self.taken += n
        if self.taken > MAX_HEADER_BYTES:
            raise self.refuse(f"its header is longer than {MAX_HEADER_BYTES} bytes, longer than any model's")
        data = self.file.read(n)
        if len(data) != n:
            raise self.shorter()
        self.at += n
        return data

    def skip(self, n: int, what: str) -> None:
        """Go on by `n` bytes."""
        self.need(n, what)
        self.file.seek(n, os.SEEK_CUR)
        self.at += n

    def u32(self, what: str) -> int:
        """Return the next four bytes as a number."""
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        """Return the next eight bytes as a number."""
        return int.from_bytes(self.take(8, what), "little")

    def text(self, what: str, most: int) -> str:
        """Return the next text of at most `most` bytes; what is not UTF-8 in it is escaped."""
        self.check_time()
        length = self.u64(what)
        self.need(length, what)
        if length > most:
            raise self.refuse(f"{what} is {length} bytes long, more than the {most} that llama.cpp allows")
        return self.take(length, what).decode("utf-8", "backslashreplace")

    def skip_texts(self, count: int, what: str) -> None:
        """Walk over `count` texts: only reading their lengths one by one shows where they end."""
        while count:
            window = self.file.read(WINDOW_BYTES)
            at = 0
            while count and at + 8 <= len(window):
                at += 8 + int.from_bytes(window[at : at + 8], "little")
                count -= 1
            self.need(at or 8, what)
            if not at:
                raise self.shorter()
            self.at += at
            self.file.seek(self.at)
            self.check_time()
