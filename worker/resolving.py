"""Make a group's model ready while telling how far that is, since building or hashing it may take long."""

from collections.abc import Callable, Generator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from schema.errors import ModelError, TokfleetError
from schema.job import ModelRef
from worker.models import Resolved, resolve

Event = dict[str, Any]
LEAST_SHARE = 0.02


def resolving(model: ModelRef, home: Path) -> Generator[Event, None, Resolved]:
    """Make the model's file ready; yields `stage` events while that takes long, returns the file.

    Raises ModelError where it cannot be made ready, whatever the reason.
    """
    told: SimpleQueue[Callable[[], Event | Resolved]] = SimpleQueue()

    def work() -> None:
        try:
            found = resolve(model, home, _tell)
            told.put(lambda: found)
        except Exception as error:  # whatever it is: who waits for it must hear of it
            told.put(lambda error=error: _raise(error))  # type: ignore[misc]

    last = -1.0

    def _tell(text: str, fraction: float) -> None:
        nonlocal last
        if fraction - last >= LEAST_SHARE or fraction < last:
            last = fraction
            told.put(lambda: {"event": "stage", "stage": "model", "text": text, "fraction": fraction})

    Thread(target=work, daemon=True).start()
    while True:
        item = told.get()()
        if isinstance(item, Resolved):
            return item
        yield item


def _raise(error: Exception) -> Any:
    if isinstance(error, TokfleetError):
        raise error if isinstance(error, ModelError) else ModelError(str(error)) from error
    raise ModelError(f"The model cannot be made ready: {error or type(error).__name__}.") from error
