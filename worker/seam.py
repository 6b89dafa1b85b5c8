"""What the timing loop needs of llama.cpp: any context that fulfils `Engine`, the real one or a stand-in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Clock = Callable[[], int]
"""Returns monotonic nanoseconds."""


class EngineError(Exception):
    """llama.cpp said no; the text is its reason in words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One token of a batch that holds several sequences, or of which several answers are wanted."""

    token: int
    position: int
    sequence: int = 0
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches ready to be submitted; `keep` owns the memory they point into."""

    items: list[Any]
    keep: Any = None


class Engine(Protocol):
    """What the loop needs of a context of llama.cpp."""

    n_batch: int
    n_vocab: int
    bos: int | None

    def prepare(self, tokens: list[int], size: int) -> Batches:
        """Return `tokens` as batches of at most `size`."""

    def prepare_entries(self, entries: Sequence[Entry], size: int) -> Batches:
        """Return `entries` as batches of at most `size`."""

    def process(self, batch: Any) -> None:
        """Submit one batch."""

    def synchronize(self) -> None:
        """Wait until everything submitted has been computed."""

    def clear(self) -> None:
        """Empty the memory."""

    def n_past(self, sequence: int = 0) -> int:
        """Return how many tokens the memory holds of a sequence."""

    def take_back(self, n_past: int) -> None:
        """Remove the first sequence's tokens from position `n_past` on."""

    def save(self) -> Any:
        """Return what the memory holds of the first sequence."""

    def restore(self, state: Any, sequence: int = 0) -> None:
        """Bring back what `save` returned, as the content of `sequence`."""

    def logits(self) -> list[float]:
        """Return the logits of the last token processed."""
