"""Is our read bandwidth right? Compared with a read kernel in C, as STREAM is built, that this script compiles.

    python benchmarks/bandwidth.py [--pairs 10] [--spun 6]

Each pair is one probe of ours (as `tokfleet probe` takes it) and the C kernel at one thread and at all, in
alternating order. The C kernel (gcc -O3 -march=native -fopenmp, one thread bound to each place by
OMP_PROC_BIND) reads its memory as one array, as two arrays, and as two halves of each 4 MiB, half a second each.
What counts is the best whole pass of the best of the three, as STREAM counts.
A pair counts at a number of threads where both sides had their CPUs for at least 90 % of the time, and where
the median pass of the C kernel was at least 0.93 of its best: else the memory itself was not steady, and the
best of whole passes is luck. The others are counted as dropped. The median of ours ÷ C must lie in 0.93–1.07.

Then two processes spin beside our probe: its upper estimate (the fastest 2 % of the 2 ms bins) ÷ the quiet median
of the same kernel must lie in 0.85–1.05. No probe on a quiet machine may take more than 3 seconds.
Exit code: 0 all pass, 1 one misses, 4 too few pairs were undisturbed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.disturbance import program
from schema.host import Fingerprint
from schema.probe import SHARE_FREE, Point, Probe
from worker.fingerprint.take import take
from worker.probe.take import brief, full
from worker.variables import child_environment

CACHE = ROOT / ".cache"
LOW, HIGH = 0.93, 1.07
SPUN_LOW, SPUN_HIGH = 0.85, 1.05
LIMIT_SECONDS = 3.0
STEADY = 0.93
SOURCE = r"""
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

enum { PIECE = 1 << 19, BIN_NS = 2000000, MOST = 1 << 20, LAYOUTS = 3 };

static int64_t now(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static double used(void) {
    struct rusage u; getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + 1e-6 * (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static int order(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }

static uint64_t both(const uint64_t *a, const uint64_t *b, long n) {
    uint64_t x = 0;
    for (long i = 0; i < n; i++) x ^= a[i] ^ b[i];
    return x;
}

static uint64_t one(const uint64_t *a, long n) {
    uint64_t x = 0;
    for (long i = 0; i < n; i++) x ^= a[i];
    return x;
}

int main(int argc, char **argv) {
    long n_threads = omp_get_max_threads(), each = atol(argv[1]) / 8 / n_threads / PIECE * PIECE, n = each * n_threads;
    int64_t span = 1e9 * atof(argv[2]);
    uint64_t *a = mmap(NULL, n * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), x = 0;
    double *rates = malloc(MOST * sizeof *rates), *bins = malloc(MOST * sizeof *bins);
    if (a == MAP_FAILED || !rates || !bins) return 1;
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) a[i] = i;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        long passes = 0;
        for (long i = 0; i < MOST; i++) bins[i] = 0;
        double cpu = used();
        int64_t begun = now(), end = begun;
        while (end - begun < span && passes < MOST) {
            int64_t start = now();
            #pragma omp parallel reduction(^ : x)
            {
                uint64_t *mine = a + each * omp_get_thread_num();
                for (long at = 0; at < each; at += PIECE) {
                    if (layout == 0) x ^= one(mine + at, PIECE);
                    if (layout == 1) x ^= both(mine + at / 2, mine + each / 2 + at / 2, PIECE / 2);
                    if (layout == 2) x ^= both(mine + at, mine + at + PIECE / 2, PIECE / 2);
                    #pragma omp atomic
                    bins[(now() - begun) / BIN_NS] += PIECE * 8e9 / BIN_NS;
                }
            }
            end = now();
            rates[passes++] = n * 8e9 / (end - start);
        }
        double share = (used() - cpu) * 1e9 / (end - begun) / n_threads;
        long whole = (end - begun) / BIN_NS;
        qsort(rates, passes, sizeof *rates, order);
        qsort(bins, whole, sizeof *bins, order);
        printf("%.0f %.0f %.0f %.4f\n", rates[passes - 1], rates[passes / 2], bins[whole * 95 / 100], share);
    }
    return x == 1;
}
"""


@dataclass(frozen=True)
class Reading:
    """Bytes per second, the lowest share of its time that a thread had a CPU; of C also how steady its passes were."""

    bytes_per_s: float
    share: float
    steadiness: float = 1.0
    binned_bytes_per_s: float = 0.0


@dataclass
class Pairs:
    """All quiet probes, and by number of threads ours ÷ C of the good pairs, and with both in bins of all pairs."""

    probes: list[Probe]
    ratios: dict[int, list[float]]
    binned: dict[int, list[float]]
    dropped: int = 0

    def add(self, n: int, mine: Reading, c: Reading) -> None:
        """Count a pair where it is good, and print it."""
        good = min(mine.share, c.share) >= SHARE_FREE and c.steadiness >= STEADY
        self.dropped += not good
        self.ratios[n] += [mine.bytes_per_s / c.bytes_per_s] * good
        self.binned[n].append(mine.bytes_per_s / c.binned_bytes_per_s)
        print(
            f"{n} threads: ours {mine.bytes_per_s / 1e9:.1f}, C {c.bytes_per_s / 1e9:.1f} in its best pass, "
            f"{c.binned_bytes_per_s / 1e9:.1f} GB/s in bins; shares {mine.share:.2f} {c.share:.2f}, "
            f"C's median pass ÷ best {c.steadiness:.2f}{'' if good else ': dropped'}",
            file=sys.stderr,
        )


def compiled() -> Path:
    """Return the C kernel's program, compiled anew."""
    CACHE.mkdir(exist_ok=True)
    source, binary = CACHE / "stream_read.c", CACHE / "stream_read"
    source.write_text(SOURCE)
    subprocess.check_call(["gcc", "-O3", "-march=native", "-fopenmp", str(source), "-o", str(binary)])
    return binary


def theirs(binary: Path, n_threads: int, n_bytes: int) -> Reading:
    """Run the C kernels, half a second each, and return the one with the best pass."""
    bound = {"OMP_NUM_THREADS": str(n_threads), "OMP_PROC_BIND": "true"}
    command = [str(binary), str(n_bytes), "0.5"]
    told = subprocess.check_output(command, env=child_environment() | bound, text=True).splitlines()
    best, middle, binned, share = max([float(word) for word in line.split()] for line in told)
    return Reading(best, share, middle / best, binned)


def ours(probe: Probe, n_threads: int) -> Reading:
    """Return what a probe says of one number of threads."""
    shares = [point.min_cpu_share for point in points(probe, n_threads) if point.min_cpu_share is not None]
    return Reading(probe.curve()[n_threads], max(shares))


def points(probe: Probe, n_threads: int) -> list[Point]:
    """Return the stretches of reading with `n_threads`."""
    return [point for point in probe.points if point.n_threads == n_threads]


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Keep `count` processes busy for the length of the block."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(program("while True: pass"))
        yield


def compare(fingerprint: Fingerprint, binary: Path, n_pairs: int) -> Pairs:
    """Take pairs until there are enough good ones at every number of threads, or three times as many of any kind."""
    first = read_probe(fingerprint)
    pairs = Pairs([first], {n: [] for n in first.curve()}, {n: [] for n in first.curve()})
    for turn in range(3 * n_pairs):
        probe = read_probe(fingerprint) if turn % 2 == 0 else None
        c = {n: theirs(binary, n, first.points[0].working_set_bytes) for n in pairs.ratios}
        probe = probe or read_probe(fingerprint)
        pairs.probes.append(probe)
        for n, reading in c.items():
            pairs.add(n, ours(probe, n), reading)
        if turn + 1 >= n_pairs and min(map(len, pairs.ratios.values())) >= n_pairs:
            break
    return pairs


def read_probe(fingerprint: Fingerprint) -> Probe:
    """Take a whole probe and return its read bandwidth."""
    return full(fingerprint)[0]


def disturbed(fingerprint: Fingerprint, quiet: list[Probe], n_probes: int) -> dict[int, list[float]]:
    """Return, by threads, the upper estimates beside two spinning processes ÷ the same kernel's quiet median."""
    found: dict[int, list[float]] = {}
    with spinning(2):
        for _ in range(n_probes):
            probe = read_probe(fingerprint)
            for n in probe.curve():
                best = max(points(probe, n), key=lambda point: point.bytes_per_s)
                known = [quickest(each, n, best.kernel) for each in quiet]
                if any(known):
                    middle = statistics.median(value for value in known if value)
                    found.setdefault(n, []).append(best.top_bytes_per_s / middle)
                share = best.min_cpu_share or 0.0
                print(
                    f"{n} threads beside two spinners: {best.bytes_per_s / 1e9:.1f} GB/s, share {share:.2f}",
                    file=sys.stderr,
                )
    return found


def quickest(probe: Probe, n_threads: int, kernel: str) -> float | None:
    """Return the best undisturbed reading of a probe with one kernel; None where there is none."""
    free = [p.p95_bytes_per_s for p in points(probe, n_threads) if p.kernel == kernel and not p.contended]
    return max(free, default=None)


def judged(name: str, values: list[float], low: float, high: float) -> bool:
    """Print the median of `values` with their range, and return whether it lies in `low`–`high`."""
    middle = statistics.median(values)
    passed = low <= middle <= high
    spread = f"[{min(values):.3f}, {max(values):.3f}]"
    print(f"{name}: {middle:.3f} {spread}, {len(values)} times (goal {low}–{high})  {'pass' if passed else 'MISS'}")
    return passed


def main(n_pairs: int, n_spun: int) -> int:
    """Print every ratio and return the exit status."""
    binary = compiled()
    with tempfile.TemporaryDirectory() as home:
        fingerprint = take(Path(home), None)
    pairs = compare(fingerprint, binary, n_pairs)
    passed = []
    for n, values in pairs.ratios.items():
        if len(values) < n_pairs:
            print(f"{n} threads: only {len(values)} undisturbed pairs of {n_pairs}: cannot be told here")
            continue
        passed.append(judged(f"{n} threads, ours ÷ C", values, LOW, HIGH))
    for n, values in pairs.binned.items():
        print(f"{n} threads, both in bins of 2 ms, of all pairs: {statistics.median(values):.3f} (no goal)")
    print(f"{pairs.dropped} readings were dropped as disturbed")
    for n, values in disturbed(fingerprint, pairs.probes, n_spun).items():
        passed.append(judged(f"{n} threads beside two spinners, upper estimate ÷ quiet", values, SPUN_LOW, SPUN_HIGH))
    costs = [float(str(probe.details["cost_seconds"])) for probe in pairs.probes]
    short = brief(fingerprint, [len(os.sched_getaffinity(0))], "benchmark", "before")
    passed.append(judged("seconds of a probe", costs, 0.0, LIMIT_SECONDS))
    print(f"the short form took {short.details.get('cost_seconds')} s")
    if not all(passed):
        return 1
    return 0 if all(len(values) >= n_pairs for values in pairs.ratios.values()) else 4


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10, help="undisturbed pairs at each number of threads")
    parser.add_argument("--spun", type=int, default=6, help="probes beside two spinning processes")
    options = parser.parse_args()
    sys.exit(main(options.pairs, options.spun))
