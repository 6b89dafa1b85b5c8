"""How a measuring process ended, whatever way that was, as one word and in words (stdlib only)."""

import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the measuring process ended; `stuck` says that even SIGKILL has not ended it yet."""

    returncode: int
    timed_out: bool
    out_of_memory: bool
    broken_reply: str | None
    log_tail: tuple[str, ...]
    stuck: bool = False

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, such as `SIGABRT`; None when it ended by itself."""
        if self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def kind(self) -> str:
        """One word for the way it ended: `timeout`, `oom`, `garbage`, `abort`, `signal`, `exit` or `no_result`."""
        if self.timed_out:
            return "timeout"
        if self.out_of_memory:
            return "oom"
        if self.broken_reply is not None:
            return "garbage"
        if self.signal_name:
            return "abort" if self.signal_name == "SIGABRT" else "signal"
        return "exit" if self.returncode else "no_result"

    def describe(self, timeout_seconds: float) -> str:
        """Return the way it ended in words that follow on `The measuring process`."""
        stuck = "; the kernel still holds it, even SIGKILL did not end it" if self.stuck else ""
        foreign = ", an illegal instruction: its llama.cpp was built for another CPU"
        words = {
            "timeout": f"ran past its limit of {timeout_seconds:g} s and was ended",
            "oom": "was ended by the kernel because memory ran out",
            "garbage": f"sent something that is not an event: {self.broken_reply}",
            "abort": "was aborted by llama.cpp (SIGABRT)",
            "signal": f"was killed by {self.signal_name}{foreign * (self.signal_name == 'SIGILL')}",
            "exit": f"ended with exit code {self.returncode}",
            "no_result": "ended without a result",
        }
        return words[self.kind] + stuck


def oom_kills() -> int:
    """Return how many processes the kernel has ended for lack of memory since it started (0 where unknown)."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
