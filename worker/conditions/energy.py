"""What an attempt cost in joules, by the machine's counters: all of it, what the idle machine takes, per token."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schema.job import Test
from schema.record import Conditions, Energy, Sample
from worker.conditions.counters import TICKS_PER_SECOND, Counters, growth, of_machine
from worker.conditions.rapl import Rapl
from worker.conditions.thresholds import limit_of
from worker.conditions.verdict import Given, measures

IDLE_SECONDS = 0.5
IDLE_BUSY_CORES = 0.10
LEAST_SECONDS = 0.1
TIMED_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Idle:
    """The watts of each counter while nothing of ours ran; none where something else did."""

    watts: dict[str, float] = field(default_factory=dict)


def measure_idle(
    rapl: Rapl, sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic
) -> Idle:
    """Return what the machine takes when left alone: sleeps for half a second, where there is something to read.

    Nothing is known where more than a tenth of a CPU was busy meanwhile.
    """
    if not rapl.domains:
        return Idle()
    earlier, before, begun = of_machine(rapl.root), rapl.read(), clock()
    sleep(IDLE_SECONDS)
    after, seconds, later = rapl.read(), clock() - begun, of_machine(rapl.root)
    if seconds <= 0 or _busy_cores(growth(earlier, later), seconds) > IDLE_BUSY_CORES:
        return Idle()
    return Idle({name: joules / seconds for name, joules in rapl.added(before, after).items()})


def _busy_cores(grown: Counters, seconds: float) -> float:
    return grown.get("busy_ticks", 0) / TICKS_PER_SECOND / seconds


def energy(
    joules: dict[str, float], idle: Idle, samples: Sequence[Sample], test: Test, conditions: Conditions, given: Given
) -> Energy | None:
    """Return what the repetitions took; None where nothing counts it. `joules` are the processor's counters.

    Prompt and answer of a combined test, and passes that verify, have no figure per token: one reading covers both.
    """
    seconds = conditions.watched_seconds
    gpus = {f"gpu {gpu.index}": gpu.energy_joules for gpu in conditions.gpu if gpu.energy_joules is not None}
    parts = {**joules, **gpus}
    if not parts or not seconds:
        return None
    total = sum(parts.values())
    per_token = total / sum(sample.n_tokens for sample in samples) if samples else None
    reason = _doubt(parts, gpus, seconds, samples, conditions, given)
    known = all(name in idle.watts for name in parts)
    return Energy(
        joules_total=total,
        joules_idle=seconds * sum(idle.watts[name] for name in parts) if known else None,
        joules_per_prefill_token=per_token if test.kind == "pp" else None,
        joules_per_decoded_token=per_token if test.kind == "tg" else None,
        seconds=seconds,
        method="+".join(["rapl"] * bool(joules) + ["gpu"] * bool(gpus)),
        parts=parts,
        valid=reason is None,
        reason=reason,
    )


def _doubt(
    parts: dict[str, float],
    gpus: dict[str, float],
    seconds: float,
    samples: Sequence[Sample],
    conditions: Conditions,
    given: Given,
) -> str | None:
    """Return why the counters do not stand for the test, None where they do."""
    timed = sum(sample.elapsed_ns for sample in samples) / 1e9
    covered = max((gpu.seconds for gpu in conditions.gpu if gpu.energy_joules is not None and gpu.seconds), default=0.0)
    crowd = measures(conditions, given).get("crowd_cores")
    if given.on_gpu and not gpus:
        return "the GPU that computed has no counter"
    if not given.on_gpu and len(parts) == len(gpus):
        return "the processor that computed has no counter"
    if seconds < LEAST_SECONDS:
        return f"{seconds:.3f} s are too short for the counters"
    if timed < TIMED_SHARE * max(seconds, covered):
        return f"only {timed / max(seconds, covered):.0%} of the time that was counted was timed"
    if crowd is None:
        return "what other processes did is unknown, and the counters are the machine's"
    if crowd > limit_of("crowd_cores"):
        return "other processes were at work, and the counters are the machine's"
    return None
