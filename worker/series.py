"""A series: what one measuring process measures, with a short probe of the memory before it and after it."""

import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from schema.host import Fingerprint
from worker.probe import take

Event = dict[str, Any]


@dataclass(slots=True)
class Series:
    """One series of attempts; `n_threads` are the numbers of threads that they decode with."""

    fingerprint: Fingerprint
    n_threads: frozenset[int]
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    _failed: bool = False

    def probe(self, moment: Literal["before", "after"]) -> Iterator[Event]:
        """Measure the memory now, while nothing else is measured, and yield what to show and what to store.

        Where the probe before a series failed there is none after it: there would be nothing to compare.
        """
        if self._failed:
            return
        yield {"event": "stage", "stage": "probe"}
        found = take.brief(self.fingerprint, self.n_threads, self.uid, moment)
        self._failed = found.value is None
        yield {"event": "probe", "probe": asdict(found)}
