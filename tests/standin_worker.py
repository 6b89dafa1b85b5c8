"""A measuring process without llama.cpp that goes wrong on request: `STANDIN_FAULT=abort@decode`.

The real `worker.__main__` and `worker.run` around an engine that sleeps. Its build says `stand-in`.
Faults: abort, segv, kill, hang, exit0, exit7, garbage, oom, error, eat, hold; stages: those of the record.
`STANDIN_LOG` names a file that gets the uid of each attempt whose end the supervisor has acknowledged.
With `#12` behind the stage it goes wrong only in a context of 12 tokens.
"""

import os
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from schema.host import Build
from schema.record import Effective, Memory
from schema.settings import Settings
from worker.measure import Batches, EngineError

FAULT, _, PLACE = os.environ.get("STANDIN_FAULT", "").partition("@")
STAGE, _, ONLY_N_CTX = PLACE.partition("#")
TOKEN_SECONDS = float(os.environ.get("STANDIN_TOKEN_SECONDS", "0.002"))


class Now:
    """Where the process is: kept from the stages that it tells the supervisor."""

    stage = "start"
    n_ctx = 0


def go_wrong() -> None:
    if Now.stage != STAGE or (ONLY_N_CTX and int(ONLY_N_CTX) != Now.n_ctx):
        return
    sys.stderr.write(f"stand-in: about to {FAULT} in {STAGE}\n")
    sys.stderr.flush()
    FAULTS[FAULT]()


def _send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def _garbage() -> None:
    os.write(int(sys.argv[sys.argv.index("--events") + 1]), b"this is not JSON\n")
    time.sleep(60)


def _raise() -> None:
    raise EngineError("llama_decode returned 1: no room left in the context for the batch")


def _raise_memory() -> None:
    raise MemoryError


def _eat_memory() -> None:
    group = os.environ.get("STANDIN_CGROUP")
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    blocks = []
    while True:
        blocks.append(b"x" * (64 << 20))


def _hold_memory() -> None:
    """Hold 97 % of the machine's memory for some seconds, once, then go on."""
    import psutil

    memory = psutil.virtual_memory()
    blocks = []
    while psutil.virtual_memory().available > 0.03 * memory.total:
        blocks.append(b"x" * (64 << 20))
    time.sleep(6)
    sys.stderr.write("stand-in: held the memory\n")
    FAULTS["hold"] = lambda: None


FAULTS = {
    "abort": os.abort,
    "segv": lambda: _send(signal.SIGSEGV),
    "kill": lambda: _send(signal.SIGKILL),
    "hang": lambda: time.sleep(3600),
    "exit0": lambda: os._exit(0),
    "exit7": lambda: os._exit(7),
    "garbage": _garbage,
    "error": _raise,
    "oom": _raise_memory,
    "eat": _eat_memory,
    "hold": _hold_memory,
}


class Model:
    tokenize_ts = None

    def __init__(self, path: Path, settings: Settings, _log: object) -> None:
        go_wrong()
        self.load_in_effect = {"n_gpu_layers": Effective(value=0, source="devices")}

    def facts(self) -> dict[str, Any]:
        return {"model_type": "stand-in", "model_size": 1, "model_n_params": 1}


class Context:
    def __init__(
        self, model: Model, settings: Settings, n_threads: int, n_ctx: int, n_threads_batch: int, n_parallel: int
    ) -> None:
        Now.n_ctx = n_ctx
        go_wrong()
        self.n_batch, self.n_vocab, self.bos = settings.n_batch, 100, None
        self.held, self.n_threads = 0, n_threads

    def settings_in_effect(self) -> dict[str, Effective]:
        return {"n_threads": Effective(value=self.n_threads, source="getter")}

    def memory(self) -> Memory:
        return Memory()

    def prepare(self, tokens: list[int], size: int) -> Batches:
        return Batches([tokens[i : i + size] for i in range(0, len(tokens), size)], keep=len(tokens))

    def process(self, batch: list[int]) -> None:
        go_wrong()
        self.held += len(batch)
        time.sleep(TOKEN_SECONDS)

    def synchronize(self) -> None:
        pass

    def clear(self) -> None:
        self.held = 0

    def n_past(self, sequence: int = 0) -> int:
        return self.held

    def save(self) -> int:
        return self.held

    def restore(self, state: int, sequence: int = 0) -> None:
        self.held = state

    def logits(self) -> list[float]:
        return [0.0, 1.0]

    def close(self) -> None:
        pass


def main() -> None:
    engine = types.ModuleType("worker.engine")
    engine.Model, engine.Context, engine.start = Model, Context, lambda: None  # type: ignore[attr-defined]
    build = types.ModuleType("worker.engine.build")
    build.build_facts = lambda: Build(binding="stand-in", method="stand-in")  # type: ignore[attr-defined]
    build.library_files = lambda: [__file__]  # type: ignore[attr-defined]
    sys.modules["worker.engine"], sys.modules["worker.engine.build"] = engine, build
    sys.argv = ["worker", *sys.argv[sys.argv.index("worker") + 1 :]]
    if "--build" not in sys.argv:
        go_wrong()
    import worker.__main__ as real

    class Emitter(real._Emitter):
        def __call__(self, event: dict[str, Any]) -> None:
            Now.stage = event.get("stage", Now.stage)
            super().__call__(event)
            if event["event"] == "attempt_end" and "STANDIN_LOG" in os.environ:
                with open(os.environ["STANDIN_LOG"], "a") as log:
                    log.write(event["attempt_uid"] + "\n")

    real._Emitter = Emitter  # type: ignore[misc]
    real.main()


if __name__ == "__main__":
    main()
