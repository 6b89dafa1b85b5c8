"""Stand-ins for what tests cannot have or must control. Nothing here measures anything."""

from typing import Any

from worker.measure import Batches, EngineError


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
        self.held: list[int] = []
        self.pending = 0
        self.log: list[str] = []
        self.answer: list[float] = [0.0, 1.0, 2.0]
        self.refuse_at: int | None = None
        self.leaks = False
        self.slower_ns = 0

    def prepare(self, tokens: list[int], size: int) -> Batches:
        return Batches([tokens[i : i + size] for i in range(0, len(tokens), size)])

    def process(self, batch: Any) -> None:
        if self.refuse_at is not None and len(self.held) + len(batch) > self.refuse_at:
            raise EngineError("llama_decode returned 1: no room left in the context for the batch")
        self.held += batch
        self.pending += self.gen_ns + self.slower_ns if len(batch) == 1 else self.prompt_ns * len(batch)
        self.log.append(f"process {len(batch)}")

    def synchronize(self) -> None:
        self.clock.now += self.pending
        self.pending = 0

    def clear(self) -> None:
        self.log.append("clear")
        if not self.leaks:
            self.held = []

    def n_past(self) -> int:
        return len(self.held)

    def save(self) -> list[int]:
        return list(self.held)

    def restore(self, state: list[int]) -> None:
        self.log.append("restore")
        self.held = list(state)

    def logits(self) -> list[float]:
        return self.answer
