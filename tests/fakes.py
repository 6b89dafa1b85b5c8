"""Stand-ins for what tests cannot have or must control. Nothing here measures anything."""

from collections.abc import Sequence
from typing import Any

from worker.seam import Batches, EngineError, Entry


class FakeClock:
    """Nanoseconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class FakeEngine:
    """An engine whose every token takes a known time on a `FakeClock`; `log` tells what was asked of it."""

    def __init__(self, clock: FakeClock, prompt_ns: int = 1_000, gen_ns: int = 50_000_000) -> None:
        self.clock, self.prompt_ns, self.gen_ns = clock, prompt_ns, gen_ns
        self.n_batch, self.n_vocab = 64, 1000
        self.bos: int | None = 1
        self.sequences: dict[int, list[int]] = {}
        self.pending = 0
        self.log: list[str] = []
        self.answer: list[float] = [0.0, 1.0, 2.0]
        self.refuse_at: int | None = None
        self.leaks = False
        self.takes_back = True
        self.take_back_ns = 0
        self.slower_ns = 0

    @property
    def held(self) -> list[int]:
        return self.sequences.setdefault(0, [])

    @held.setter
    def held(self, tokens: list[int]) -> None:
        self.sequences[0] = tokens

    def prepare(self, tokens: list[int], size: int) -> Batches:
        return Batches([tokens[i : i + size] for i in range(0, len(tokens), size)])

    def prepare_entries(self, entries: Sequence[Entry], size: int) -> Batches:
        return Batches([entries[i : i + size] for i in range(0, len(entries), size)])

    def process(self, batch: Any) -> None:
        if self.refuse_at is not None and len(self.held) + len(batch) > self.refuse_at:
            raise EngineError("llama_decode returned 1: no room left in the context for the batch")
        for item in batch:
            self._take(item)
        self.pending += self.gen_ns + self.slower_ns if len(batch) == 1 else self.prompt_ns * len(batch)
        self.log.append(f"process {len(batch)}")

    def _take(self, item: int | Entry) -> None:
        entry = item if isinstance(item, Entry) else Entry(item, len(self.held))
        held = self.sequences.setdefault(entry.sequence, [])
        if len(held) != entry.position:
            raise EngineError(f"sequence {entry.sequence} holds {len(held)} tokens, not {entry.position}")
        held.append(entry.token)

    def synchronize(self) -> None:
        self.clock.now += self.pending
        self.pending = 0

    def clear(self) -> None:
        self.log.append("clear")
        if not self.leaks:
            self.sequences = {}

    def n_past(self, sequence: int = 0) -> int:
        return len(self.sequences.get(sequence, []))

    def take_back(self, n_past: int) -> None:
        if not self.takes_back:
            raise EngineError("this model cannot take tokens back, so no pass that verifies can be repeated")
        self.clock.now += self.take_back_ns
        del self.held[n_past:]

    def save(self) -> list[int]:
        return list(self.held)

    def restore(self, state: list[int], sequence: int = 0) -> None:
        self.log.append("restore")
        self.sequences[sequence] = list(state)

    def logits(self) -> list[float]:
        return self.answer
