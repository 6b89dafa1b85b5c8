"""Why an attempt failed, in one word and in a sentence: from what the process said, or from how it ended."""

from schema.record import Failure
from worker import reasons
from worker.exit import Exit

MESSAGE_CHARS = 2000

INTERRUPTED_TURNS = Failure(
    stage="interrupted",
    message="It took turns with another job, whose failure ended the process; it is still to be done.",
    kind="interrupted",
)
"""Of an attempt that was open beside the one that failed: it is not to blame, and its job gets another."""


def of_error(stage: str, error: str) -> Failure:
    """Return the failure of a process that could still say what went wrong."""
    error = error[:MESSAGE_CHARS]
    return Failure(stage=stage, message=error, kind="oom" if reasons.out_of_memory(error) else "error")


def of_exit(stage: str, end: Exit, timeout_seconds: float) -> Failure:
    """Return the failure of a process that ended; what its log says of the reason is part of the sentence."""
    log = "\n".join(end.log_tail)
    died = end.kind in ("abort", "signal", "exit")
    told = reasons.reason(log) if died else None
    return Failure(
        stage=stage,
        message=f"The measuring process {end.describe(timeout_seconds)} (stage: {stage})"
        + (f": {told}" if told else "."),
        kind="oom" if died and reasons.out_of_memory(log) else end.kind,
        signal=end.signal_name,
        exit_code=end.returncode if end.returncode >= 0 else None,
        log_tail=end.log_tail,
    )


def not_tried(first: Failure) -> Failure:
    """Return the failure of an attempt that would meet the same illegal instruction as `first` did."""
    message = f"Not tried, since the same llama.cpp has just failed: {first.message}"
    return Failure(stage=first.stage, message=message, kind=first.kind, signal=first.signal)
