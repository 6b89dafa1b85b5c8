"""Does a synthetic model run like the real one, and is it written as quickly as the disk takes it?

    python benchmarks/synthetic.py [--tests pp512 tg128] [--max-pairs 60] [--skip speed | writing]

Speed: the published Gemma 3 270M (Q4_K_M) against its clone of seeded random weights, in ABBA pairs
of measuring processes, a new one for each measurement (see fidelity.py). A test
goes on from 15 to 60 good pairs until the 95 % bootstrap interval of the median ratio (clone ÷
original) is at most ±1 % wide; it passes when that interval lies inside 0.97–1.03.

Writing: llama-3.2-1b:Q4_K_M into a directory of the file system that holds the models, twice, each
beside `dd if=/dev/zero conv=fdatasync` of the same size. It passes when it takes at most twice as
long, with at most 300 MB of memory, and both files have the same SHA-256.

Exit code: 0 all pass, 1 one misses, 4 one cannot be told on this machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import (
    CACHE,
    MAX_PAIRS,
    TESTS,
    model_file,
    ours,
    pairs_of,
    verdict,
)
from schema.settings import Settings
from worker.models import reference, resolve
from worker.synthetic import header, parse

CLONE, WRITTEN = "gemma-3-270m:Q4_K_M", "llama-3.2-1b:Q4_K_M"
LIKE = (0.97, 1.03)
MAX_RATIO, MAX_MEMORY_BYTES, ROUNDS = 2.0, 300e6, 2
BUILD = """
import sys
from pathlib import Path
from worker.synthetic import build, parse
print(build(parse(sys.argv[1]), Path(sys.argv[2]), lambda what, share: None)[1])
"""


def speed(tests: list[str], max_pairs: int) -> list[int]:
    """Compare clone and original in every test, and return the exit codes."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus)  # both processes inherit the same mask
    original = model_file("gemma")
    clone = resolve(reference("synthetic", CLONE, ROOT), CACHE, lambda what, share: None).path
    codes = []
    for name in tests:
        sides = [partial(ours, path, TESTS[name], 1, Settings(n_threads=len(cpus))) for path in (clone, original)]
        code, told = verdict(*pairs_of(sides[0], sides[1], max_pairs), other="original", one="clone", bounds=LIKE)
        codes.append(code)
        print(f"{name:8} {told}", flush=True)
    return codes


@dataclass(frozen=True)
class Written:
    """One file that was written: the seconds it took, the writer's peak memory, what it printed."""

    seconds: float
    peak_bytes: int
    printed: str


def timed(command: list[str]) -> Written:
    """Run a command that writes a file, to its end."""
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT)
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed with {process.returncode}")
    return Written(time.monotonic() - begun, usage.ru_maxrss * 1024, printed)


def writing() -> int:
    """Write the model and as many zeros in turn, and return the exit code."""
    model = parse(WRITTEN)
    megabytes = -(-header(model).file_bytes // 2**20)
    mine: list[Written] = []
    zeros: list[Written] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=CACHE) as directory:
            out = Path(directory) / "zeros"
            zeros.append(timed(["dd", "if=/dev/zero", f"of={out}", "bs=1M", f"count={megabytes}", "conv=fdatasync"]))
            out.unlink()
            mine.append(timed([sys.executable, "-c", BUILD, WRITTEN, directory]))
    ratio = statistics.median(a.seconds for a in mine) / statistics.median(b.seconds for b in zeros)
    peak = max(a.peak_bytes for a in mine)
    same = len({a.printed for a in mine}) == 1
    good = ratio <= MAX_RATIO and peak <= MAX_MEMORY_BYTES and same
    print(
        f"writing  {megabytes} MiB in {' and '.join(f'{a.seconds:.1f}' for a in mine)} s, "
        f"dd in {' and '.join(f'{b.seconds:.1f}' for b in zeros)} s  ratio {ratio:.2f}  peak {peak / 1e6:.0f} MB  "
        f"{'the same' if same else 'ANOTHER'} SHA-256 each time  {'pass' if good else 'MISS'}",
        flush=True,
    )
    return 0 if good else 1


def main() -> int:
    """Run what is asked for, printing a line as each is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="+", default=["pp512", "tg128"], choices=list(TESTS))
    parser.add_argument("--max-pairs", type=int, default=MAX_PAIRS, help="give up after so many")
    parser.add_argument("--skip", choices=["speed", "writing"])
    options = parser.parse_args()
    codes = [] if options.skip == "speed" else speed(options.tests, options.max_pairs)
    if options.skip != "writing":
        codes.append(writing())
    return max((code for code in codes if code == 1), default=max(codes))


if __name__ == "__main__":
    sys.exit(main())
