"""How long a database has worked on a question (standard library only)."""

import time
from types import TracebackType

from orchestrator import sql_words
from schema.errors import SqlError


class Stopwatch:
    """Counts the seconds within `with`, and says when the `seconds` that there are have been used up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._used = 0.0
        self._since: float | None = None

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._used, self._since = self.used, None
        if error is None and self.is_over():
            raise SqlError(sql_words.too_slow(self.seconds))

    @property
    def used(self) -> float:
        """Seconds that were counted so far."""
        since = self._since
        return self._used + (0.0 if since is None else time.monotonic() - since)

    def is_over(self, by: float = 0.0) -> bool:
        """Return whether the seconds are used up, and `by` more besides."""
        return self.used > self.seconds + by
