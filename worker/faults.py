"""What a measuring process can do wrong, to be provoked in the stand-in: `docs/faults.md` lists it (stdlib only)."""

import difflib
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schema.record import STAGES
from worker import reasons
from worker.llama_log import LogText
from worker.seam import EngineError

FLOOD_BYTES = 8 << 20
FOREVER_SECONDS = 600.0
HELD_SHARE = 0.97
BLOCK = 64 << 20

LINES = {
    "vram": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 27371.91 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 28701528704",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "llama_model_load_from_file_impl: failed to load model",
    ),
    "vcache": ("llama_init_from_model: V cache quantization requires flash_attn",),
    "encoder": ("decode: cannot decode batches with this context (use llama_encode() instead)",),
    "mlock": (
        "warning: failed to mlock 234881024-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
        "Try increasing RLIMIT_MEMLOCK ('ulimit -l' as root).",
    ),
    "perf": (
        "llama_perf_context_print:        load time =   14702.11 ms",
        "llama_perf_context_print: prompt eval time =       0.00 ms /    13 tokens "
        "(    0.00 ms per token,      inf tokens per second)",
        "llama_perf_context_print:        eval time =       0.00 ms /    32 runs   "
        "(    0.00 ms per token,      inf tokens per second)",
    ),
    "beyond": ("llama_context: n_ctx_seq (4096) > n_ctx_train (256) -- possible training context overflow",),
}
"""What llama.cpp writes to its log in these cases."""


class Process(Protocol):
    """What a fault may do to the measuring process that it strikes."""

    events: int
    generates: bool
    log: LogText

    def say(self, *lines: str) -> None:
        """Write lines into llama.cpp's log."""

    def stop_clock(self) -> None:
        """Let the clock that times the repetitions stand still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, and where it strikes: in a stage, and there perhaps only in one repetition or size of context."""

    name: str
    stage: str
    repetition: int | None = None
    n_ctx: int | None = None

    def strikes(self, stage: str, repetition: int, n_ctx: int) -> bool:
        """Return whether this is the place."""
        return self.stage == stage and self.repetition in (None, repetition) and self.n_ctx in (None, n_ctx)

    def provoke(self, process: Process) -> None:
        """Go wrong; returns where the fault is one that a process survives."""
        sys.stderr.write(f"stand-in: about to {self.name} in {self.stage}\n")
        sys.stderr.flush()
        FAULTS[self.name](process)


def parse(text: str) -> Fault | None:
    """Return the fault in `name@stage`, `name@stage:repetition` or `name@stage#n_ctx`, None in an empty text.

    Raises ValueError naming what is there to choose from.
    """
    if not text:
        return None
    match = re.fullmatch(r"([\w-]+)@(\w+)(?::(\d+))?(?:#(\d+))?", text)
    if not match:
        raise ValueError(f"{text!r} is not FAULT@STAGE, FAULT@STAGE:REPETITION or FAULT@STAGE#N_CTX")
    name, stage, repetition, n_ctx = match.groups()
    for given, known in ((name, list(FAULTS)), (stage, ["build", *STAGES])):
        if given not in known:
            near = difflib.get_close_matches(given, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"there is no {given!r}, only {', '.join(known)}{hint}")
    return Fault(
        name=name,
        stage=stage,
        repetition=int(repetition) if repetition else None,
        n_ctx=int(n_ctx) if n_ctx else None,
    )


def _send(number: int) -> Callable[[Process], None]:
    def send(_: Process) -> None:
        os.kill(os.getpid(), number)
        time.sleep(FOREVER_SECONDS)

    return send


def _hang(_: Process) -> None:
    time.sleep(FOREVER_SECONDS)


def _grandchild() -> None:
    """Start a process that holds all our pipes open, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(FOREVER_SECONDS)
        os._exit(0)


def _hang_deaf(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _grandchild()
    _hang(process)


def _leave_grandchild(_: Process) -> None:
    _grandchild()
    os._exit(0)


def _exit(code: int) -> Callable[[Process], None]:
    def leave(_: Process) -> None:
        os._exit(code)

    return leave


def _write_garbage(text: bytes) -> Callable[[Process], None]:
    def write(process: Process) -> None:
        os.write(process.events, text)
        time.sleep(FOREVER_SECONDS)

    return write


def _flood(_: Process) -> None:
    """Write 8 MiB to stdout and 8 MiB to stderr, an eighth of it as one line."""
    lines = b"a line of the flood that means nothing\n" * 1024
    for descriptor in (1, 2):
        _write(descriptor, b"x" * (FLOOD_BYTES // 8) + b"\n")
        for _part in range(FLOOD_BYTES * 7 // 8 // len(lines)):
            _write(descriptor, lines)
    _write(2, b"the last line of the flood\n")


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _write_no_utf8(_: Process) -> None:
    _write(2, b"no UTF-8: \xff\xfe\x80 caf\xe9 \xc3\n")


def _code(code: int) -> Callable[[Process], None]:
    def refuse(_: Process) -> None:
        raise EngineError(reasons.decode_error(code))

    return refuse


def _log(name: str, fails: bool) -> Callable[[Process], None]:
    def write(process: Process) -> None:
        lines = LINES[name]
        process.say(*lines)
        if fails:
            raise EngineError(f"llama.cpp refused: {process.log.last_error()}")

    return write


def _raise_memory(_: Process) -> None:
    raise MemoryError


def _stop_clock(process: Process) -> None:
    process.stop_clock()


def _end_early(process: Process) -> None:
    process.generates = False


def _eat_memory(_: Process) -> None:
    group = os.environ.get("TOKFLEET_STANDIN_CGROUP")
    if group:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    blocks = []
    while True:
        blocks.append(b"x" * BLOCK)


def _hold_memory(_: Process) -> None:
    """Hold most of the machine's memory for some seconds, then go on."""
    blocks = []
    while _free_share() > 1 - HELD_SHARE:
        blocks.append(b"x" * BLOCK)
    time.sleep(6)
    sys.stderr.write("stand-in: held the memory\n")


def _free_share() -> float:
    text = Path("/proc/meminfo").read_text()
    total, available = (int(re.findall(rf"^{name}:\s+(\d+)", text, re.M)[0]) for name in ("MemTotal", "MemAvailable"))
    return available / total


FAULTS: dict[str, Callable[[Process], None]] = {
    "abort": lambda _: os.abort(),
    "sigill": _send(signal.SIGILL),
    "segv": _send(signal.SIGSEGV),
    "kill": _send(signal.SIGKILL),
    "hang": _hang,
    "hang_sigterm": _hang_deaf,
    "fork": _leave_grandchild,
    "exit0": _exit(0),
    "exit7": _exit(7),
    "garbage": _write_garbage(b"this is not JSON\n"),
    "inf": _write_garbage(b'{"event": "sample", "attempt_uid": "?", "sample": {"elapsed_ns": 1e999}}\n'),
    "flood": _flood,
    "bytes": _write_no_utf8,
    **{f"decode{code}": _code(code) for code in (1, 2, -1, -2, -3)},
    "oom": _raise_memory,
    **{name: _log(name, fails=True) for name in ("vram", "vcache", "encoder")},
    **{name: _log(name, fails=False) for name in ("mlock", "beyond", "perf")},
    "clock": _stop_clock,
    "eos": _end_early,
    "eat": _eat_memory,
    "hold": _hold_memory,
}
"""Every fault by its name."""
