"""What a probing process is asked for (stdlib only)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The work of one probing process.

    `cpus` are those to pin threads to, in the order in which they are taken, with the memory `nodes` beside
    them; empty where threads cannot be pinned. `counts` are the thread counts of the curve, fewest first. The
    working set may be doubled up to `most_bytes`. No step begins that would end after `budget_seconds`.
    `brief` leaves out everything but one stretch of reading for each count.
    """

    counts: tuple[int, ...]
    working_set_bytes: int
    most_bytes: int
    cpus: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    step_seconds: float = 0.25
    budget_seconds: float = 2.5
    brief: bool = False
