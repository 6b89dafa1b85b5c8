"""`python -m worker.standin`: the measuring process without llama.cpp, which goes wrong on request.

The real `worker.__main__` and `worker.run` around an engine that sleeps. Its build says `fake`, and so do
its rows. `TOKFLEET_FAULT=abort@decode:2` makes it abort in the second repetition of a decode; the faults
are those of `worker.faults`, the stages those of a record and `build`.
"""

import functools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import worker.__main__
from schema.host import Build
from schema.record import Effective, Memory
from schema.settings import Settings
from worker.faults import Fault, parse
from worker.llama_log import LogText
from worker.seam import Batches, Entry

TOKEN_SECONDS = float(os.environ.get("TOKFLEET_STANDIN_TOKEN_SECONDS", "0.002"))
"""How long one batch takes."""

METHOD = "fake"


class Standin:
    """What `worker.engine` is to `worker.run`, and where the process is, so that it goes wrong at the right place."""

    def __init__(self, fault: Fault | None, events: int) -> None:
        """Strike with `fault` when its place comes; `events` is the descriptor on which events leave."""
        self.events, self.generates = events, True
        self.log = LogText()
        self.n_ctx = 0
        self._fault, self._stage, self._repetition = fault, "start", 1
        self._clock, self._stopped_at = time.perf_counter_ns, 0
        self.Model = functools.partial(Model, self)
        self.Context = Context

    def start(self) -> LogText:
        """Return the log."""
        return self.log

    def build_facts(self) -> Build:
        """Return a build that nobody takes for llama.cpp."""
        self.here("build")
        return Build(binding="stand-in", method=METHOD)

    def library_files(self) -> list[str]:
        """Return this file in place of llama.cpp's libraries."""
        return [__file__]

    def heard(self, event: dict[str, Any]) -> None:
        """Follow the process through its stages and repetitions, by the events that were acknowledged."""
        if event["event"] == "stage":
            self._stage, self._repetition = event["stage"], event.get("repetition", 1)
        elif event["event"] == "sample":
            self._repetition += 1
        elif event["event"] == "attempt_end" and "TOKFLEET_STANDIN_LOG" in os.environ:
            with open(os.environ["TOKFLEET_STANDIN_LOG"], "a") as log:
                log.write(event["attempt_uid"] + "\n")

    def here(self, stage: str | None = None) -> None:
        """Go wrong, if it is time; once, since some faults are survived."""
        fault = self._fault
        if fault is not None and fault.strikes(stage or self._stage, self._repetition, self.n_ctx):
            self._fault = None
            fault.provoke(self)

    def say(self, *lines: str) -> None:
        """Write lines into the log, as llama.cpp does."""
        for line in lines:
            self.log.add(0, f"{line}\n")
            sys.stderr.write(f"{line}\n")

    def stop_clock(self) -> None:
        """Let the clock stand still from now on."""
        self._stopped_at = self._clock()

    def clock(self) -> int:
        """Return the nanoseconds that time the repetitions."""
        return self._stopped_at or self._clock()


class Model:
    """A model that is never read."""

    tokenize_ts = None

    def __init__(self, standin: Standin, _path: Path, settings: Settings, log: LogText) -> None:
        """Take no time; `_path` need not exist."""
        self.standin = standin
        standin.here()
        self.notes = log.notes()
        mode = settings.load_mode.replace("+mlock", "").replace("mlock", "none")
        self.load_in_effect = {
            "n_gpu_layers": Effective(value=0, source="devices"),
            "load_mode": Effective(value=mode if log.mlock_refused() else settings.load_mode, source="log"),
        }

    def facts(self) -> dict[str, Any]:
        """Return what llama.cpp would say of the file."""
        return {"model_type": "stand-in", "model_size": 1, "model_n_params": 1}


class Context:
    """A context that counts its tokens and sleeps: the `Engine` that `worker.measure` times."""

    def __init__(
        self, model: Model, settings: Settings, n_threads: int, n_ctx: int, n_threads_batch: int, n_parallel: int
    ) -> None:
        """Take what `worker.engine.Context` takes."""
        self._model, self._standin = model, model.standin
        self._n_ctx = self._standin.n_ctx = n_ctx
        self._standin.generates = True
        self._standin.log.clear()
        self._standin.here()
        self.n_batch, self.n_vocab, self.bos = settings.n_batch, 100, None
        self._held = [0] * n_parallel
        self._n_threads = n_threads

    def settings_in_effect(self) -> dict[str, Effective]:
        """Return the number of threads, which is as asked."""
        return {"n_threads": Effective(value=self._n_threads, source="getter")}

    def memory(self) -> Memory:
        """Return nothing."""
        return Memory()

    def notes(self) -> tuple[str, ...]:
        """Return what the log says was done otherwise than asked."""
        return (*self._model.notes, *self._standin.log.notes())

    def prepare(self, tokens: list[int], size: int) -> Batches:
        """Return how many tokens of the first sequence each batch holds."""
        sizes = [min(size, len(tokens) - first) for first in range(0, len(tokens), size)]
        return Batches([[(0, n)] for n in sizes])

    def prepare_entries(self, entries: Sequence[Entry], size: int) -> Batches:
        """Return for each batch the sequence of each of its tokens."""
        parts = [entries[first : first + size] for first in range(0, len(entries), size)]
        return Batches([[(entry.sequence, 1) for entry in part] for part in parts])

    def process(self, batch: list[tuple[int, int]]) -> None:
        """Sleep, and hold the tokens; after an early end token there are none."""
        self._standin.n_ctx = self._n_ctx
        self._standin.here()
        for sequence, n in batch:
            self._held[sequence] += n * self._standin.generates
        time.sleep(TOKEN_SECONDS)

    def synchronize(self) -> None:
        """Return at once."""

    def clear(self) -> None:
        """Hold nothing."""
        self._held = [0] * len(self._held)

    def n_past(self, sequence: int = 0) -> int:
        """Return how many tokens it holds of a sequence."""
        return self._held[sequence]

    def take_back(self, n_past: int) -> None:
        """Hold `n_past` tokens of the first sequence."""
        self._held[0] = n_past

    def save(self) -> int:
        """Return how many tokens it holds of the first sequence."""
        return self._held[0]

    def restore(self, state: int, sequence: int = 0) -> None:
        """Hold as many again."""
        self._held[sequence] = state

    def logits(self) -> list[float]:
        """Return what a model might."""
        return [0.0, 1.0]

    def close(self) -> None:
        """Go wrong at the end, if that was asked for."""
        self._standin.here()


def main() -> None:
    """Run as `python -m worker` does, with its arguments; what a wrapper passed before them is left out."""
    arguments = sys.argv[1:]
    sys.argv[1:] = arguments[arguments.index("worker") + 1 :] if "worker" in arguments else arguments
    try:
        fault = parse(os.environ.get("TOKFLEET_FAULT", ""))
    except ValueError as error:
        sys.exit(f"TOKFLEET_FAULT: {error}")
    events = int(sys.argv[sys.argv.index("--events") + 1]) if "--events" in sys.argv else 1
    standin = Standin(fault, events)
    time.perf_counter_ns = standin.clock
    if "--build" not in sys.argv:
        standin.here()
    worker.__main__.main(standin, standin.heard)


if __name__ == "__main__":
    main()
