"""The one table of limits: beyond which value of a measure an attempt is no longer `clean`, what it is then, and why.

They are first values, found on a few machines. The raw numbers are stored with every result, to judge again.
"""

from dataclasses import dataclass

QUALITIES = ("contended", "throttled", "limited", "noisy", "clean")
"""What an attempt can be called, worst first.

`contended`: something kept the measuring threads from running, or from memory. `throttled`: heat or a weak supply
held the clocks down. `limited`: less than the machine can give was given, and is so again next time: a quota, too
few CPUs, a power limit, a battery. `noisy`: something else went on, or the figures are uneven, perhaps without
harm. `clean`: no sign of any.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Beyond `limit` of `measure` an attempt is `quality`; `words` say so with the numbers, `why` why it is there.

    Of the thresholds with the same `subject` only the first that is passed counts: the worst comes first.
    """

    measure: str
    limit: float
    quality: str
    words: str
    why: str
    subject: str = ""


THRESHOLDS = (
    # others took what the threads needed
    Threshold(
        measure="run_delay_share",
        limit=0.10,
        quality="contended",
        words="threads waited {run_delay_share:.0%} of the time for a CPU",
        why="Time in which a measuring thread was ready and had no CPU: the best single sign of others at work.",
        subject="delay",
    ),
    Threshold(
        measure="run_delay_share",
        limit=0.02,
        quality="noisy",
        words="threads waited {run_delay_share:.1%} of the time for a CPU",
        why="As above; all threads wait at each barrier for the one that waited, so the rate falls by more.",
        subject="delay",
    ),
    Threshold(
        measure="lost_share",
        limit=0.10,
        quality="contended",
        words="threads ran only {cpu_share:.0%} of the time",
        why="1 − CPU share, where the kernel does not count waiting, there is no quota, and no GPU computes.",
        subject="delay",
    ),
    Threshold(
        measure="pressure_share",
        limit=0.10,
        quality="noisy",
        words="some program waited for a CPU {cpu_pressure_share:.0%} of the time",
        why="Pressure (PSI, CPU, some), where the kernel does not count our own waiting and the threads fit the CPUs.",
        subject="delay",
    ),
    Threshold(
        measure="times_stopped",
        limit=0,
        quality="contended",
        words="the measuring process was stopped meanwhile, by a signal or a debugger",
        why="The kernel tells the parent of every stop and continuation, and the process's state shows it.",
    ),
    Threshold(
        measure="asleep_share",
        limit=0.20,
        quality="contended",
        words="the main thread neither ran nor waited for a CPU {asleep_share:.0%} of the time: stopped or asleep",
        why="1 − (ran + waited for a CPU) of the main thread, which computes from end to end where no GPU does: "
        "frozen, stopped, waiting for a disk, or for another thread that had no CPU.",
        subject="asleep",
    ),
    Threshold(
        measure="asleep_share",
        limit=0.05,
        quality="noisy",
        words="the main thread neither ran nor waited for a CPU {asleep_share:.1%} of the time",
        why="As above.",
        subject="asleep",
    ),
    Threshold(
        measure="excess_cores",
        limit=0.50,
        quality="contended",
        words="other processes needed {excess_cores:.2f} CPUs more than were free",
        why="CPU time of everything else, beyond the CPUs that our threads leave free. What two ticks of the "
        "kernel's clock could feign is taken off first.",
        subject="others",
    ),
    Threshold(
        measure="crowd_cores",
        limit=0.05,
        quality="noisy",
        words="other processes kept {others_busy_cores:.2f} CPUs busy",
        why="The same, or others at work on more than 5 % of all CPUs: they share the memory and the clock budget.",
        subject="others",
    ),
    Threshold(
        measure="steal_share",
        limit=0.05,
        quality="contended",
        words="the hypervisor took {steal_share:.0%} of the CPU time",
        why="A virtual machine's CPUs were given to others. Many hypervisors do not tell.",
        subject="steal",
    ),
    Threshold(
        measure="steal_share",
        limit=0.01,
        quality="noisy",
        words="the hypervisor took {steal_share:.1%} of the CPU time",
        why="As above.",
        subject="steal",
    ),
    Threshold(
        measure="memory_pressure_share",
        limit=0.005,
        quality="contended",
        words="everything waited for memory {memory_pressure_share:.1%} of the time",
        why="Pressure (PSI, memory, full): the machine was short of memory.",
    ),
    Threshold(
        measure="gpu_others",
        limit=0,
        quality="contended",
        words="{gpu_other_words}",
        why="Other processes in the driver's list, where a GPU computed.",
    ),
    # heat and power held the clocks down
    Threshold(
        measure="thermal_throttles",
        limit=0,
        quality="throttled",
        words="the processor throttled itself {thermal_throttles} times for heat",
        why="Intel's counters of cores and packages (thermal_throttle).",
        subject="heat",
    ),
    Threshold(
        measure="cooling_share",
        limit=0,
        quality="throttled",
        words="the system held computing back for heat, by up to {cooling_share:.0%} of what it can",
        why="A cooling device that slows computing down was on (thermal, cooling_device). Fans do not count.",
        subject="heat",
    ),
    Threshold(
        measure="hot_clock_fall",
        limit=0.05,
        quality="throttled",
        words="the clock fell by {clock_fall:.0%} while it was hot, up to {temperature_max_c:.0f} °C",
        why="Mean clock under the first one, with 80 °C reached or 10 °C gained.",
        subject="heat",
    ),
    Threshold(
        measure="firmware_flags",
        limit=0,
        quality="throttled",
        words="the firmware reported {firmware_words}",
        why="Raspberry Pi's own bits: under-voltage, clock capped, throttled, soft temperature limit.",
    ),
    Threshold(
        measure="gpu_throttles",
        limit=0,
        quality="throttled",
        words="{gpu_throttle_words}",
        why="The driver's reasons for low clocks, where a GPU computed: heat, hardware slowdown, power brake.",
    ),
    # less was given than there is
    Threshold(
        measure="threads_over_cpus",
        limit=0,
        quality="limited",
        words="{n_threads} threads share {n_cpus} CPUs",
        why="More threads than CPUs that we may use.",
        subject="allocation",
    ),
    Threshold(
        measure="threads_over_quota",
        limit=0,
        quality="limited",
        words="{n_threads} threads have a quota of {quota_cores:g} CPUs",
        why="More threads than the control group's quota lets run at once.",
        subject="quota",
    ),
    Threshold(
        measure="quota_throttles",
        limit=0,
        quality="limited",
        words="a control group's quota held the threads up {quota_throttles} times, for {quota_seconds:.2f} s in all",
        why="Counted by the kernel for our control group and all above it; any is too many.",
        subject="quota",
    ),
    Threshold(
        measure="lost_under_quota",
        limit=0.10,
        quality="limited",
        words="threads ran only {cpu_share:.0%} of the time under a quota of {quota_cores:g} CPUs",
        why="1 − CPU share, where there is a quota and its counters cannot be read.",
        subject="quota",
    ),
    Threshold(
        measure="power_limit_throttles",
        limit=0,
        quality="limited",
        words="the processor met its power limit {power_limit_throttles} times",
        why="Intel's counters: what the maker or the firmware allows, the same next time.",
    ),
    Threshold(
        measure="on_battery",
        limit=0,
        quality="limited",
        words="ran on battery",
        why="Most machines compute slower then.",
    ),
    # something else went on
    Threshold(
        measure="clock_fall",
        limit=0.05,
        quality="noisy",
        words="the clock fell by {clock_fall:.0%} from where it began",
        why="Mean clock under the first one, of the CPUs that the process ran on.",
        subject="heat",
    ),
    Threshold(
        measure="major_faults",
        limit=0,
        quality="noisy",
        words="{major_faults} pages had to be read from disk",
        why="After the warm-up everything should be in memory.",
    ),
    Threshold(
        measure="swapped_in_pages",
        limit=256,
        quality="noisy",
        words="the machine took {swapped_in_pages} pages back in from swap",
        why="One MiB; fewer are the odd page of a program that wakes. Our own pages count as above.",
    ),
    Threshold(
        measure="suspended_seconds",
        limit=0.05,
        quality="noisy",
        words="the machine slept for {suspended_seconds:.1f} s meanwhile",
        why="The two clocks of the kernel, with and without sleep, went apart.",
    ),
    # the figures themselves are uneven
    Threshold(
        measure="load_per_cpu",
        limit=1.5,
        quality="noisy",
        words="begun under load: {load1:.1f} processes wanted {n_cores} CPUs in the minute before",
        why="Load average of one minute ÷ CPUs: half as much again as what one full benchmark leaves.",
    ),
    Threshold(
        measure="first_slow",
        limit=0.10,
        quality="noisy",
        words="first-run effect: the first repetition was {first_slow:.0%} slower than the later ones, which agree",
        why="The warm-up was not enough, or something was still going on.",
        subject="samples",
    ),
    Threshold(
        measure="two_speeds",
        limit=0.05,
        quality="noisy",
        words="two speeds: {n_slow} of {n} repetitions were {two_speeds:.0%} slower than the others",
        why="Two groups of at least two repetitions, three times as far apart as either is wide: threads placed "
        "differently, or a clock that jumps.",
        subject="samples",
    ),
    Threshold(
        measure="trend",
        limit=0.05,
        quality="noisy",
        words="drifts: the rate {fell_or_rose} by {trend:.0%} over {n} repetitions{heat}",
        why="Median slope of all pairs (Theil and Sen) over the whole, where four of five pairs are in one order.",
        subject="samples",
    ),
    Threshold(
        measure="first_fast",
        limit=0.10,
        quality="noisy",
        words="drifts: the first repetition was {first_fast:.0%} faster than the later ones{heat}",
        why="As of a machine that is cool only once.",
        subject="samples",
    ),
    Threshold(
        measure="odd",
        limit=0.10,
        quality="noisy",
        words="repetition {odd_number} was {odd:.0%} {odd_way} than the median",
        why="One that is far from the others pulls the mean; the median stands beside it.",
        subject="samples",
    ),
    Threshold(
        measure="stalls",
        limit=0.05,
        quality="noisy",
        words="single tokens that took long cost {stalls:.0%} of the time, one of them {longest_ms:.0f} ms",
        why="1 − median ÷ mean of the time per token: a steady machine has them equal.",
    ),
)
"""Worst first."""


def limit_of(measure: str) -> float:
    """Return the lowest limit of `measure`."""
    return min(threshold.limit for threshold in THRESHOLDS if threshold.measure == measure)


def table() -> list[str]:
    """Return the lines of the table in Markdown."""
    rows = [f"| `{t.measure}` | {t.limit:g} | {t.quality} | {t.why} |" for t in THRESHOLDS]
    return ["| measure | beyond | verdict | why |", "|---|---|---|---|", *rows]
