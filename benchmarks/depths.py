"""What several depths cost when tests share what is filled: the whole against one fill of the deepest.

    python benchmarks/depths.py [--depths 0 4096 16384 32768] [--threads 2]

Measures pp and tg at each depth, 5 repetitions, in one sweep, and compares the time from the first attempt's start
to the end of the command with the fill of the deepest context (measured alone, in a run of its own) and the
time inside the timed windows together. Then it compares each rate with that of the same test filled
alone. Ends with 1 where the whole is above 1.15 of the sum.
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import model_file
from benchmarks.overhead import ask, ours

GOAL = 1.15
RATES = "select test, avg_ts, stddev_ts, fill_seconds from results order by test_time"


def sweep(model: Path, depths: list[int], threads: int) -> str:
    """Return a sweep file with pp128 and tg32 at each depth."""
    tests = f"{{n_prompt: 128, n_gen: 32, n_depth: {depths}}}"
    return f"models: [{{path: {model}}}]\ntests: {tests}\nparams: {{n_threads: {threads}}}\nrepeat: 5\ntimeout: 2h\n"


def main(depths: list[int], threads: int) -> int:
    """Print the ratio and the rates, and return the exit status."""
    model = model_file("gemma")
    with tempfile.TemporaryDirectory() as together, tempfile.TemporaryDirectory() as alone:
        shared = ours(sweep(model, depths, threads), 2 * len(depths), Path(together))
        ours(sweep(model, depths[-1:], threads), 2, Path(alone))
        rows, fresh = ask(RATES, Path(together)), ask(RATES, Path(alone))
    fill = fresh[0]["fill_seconds"]
    ratio = shared.rest / (fill + shared.windows)
    for row in rows:
        filled = f"{row['fill_seconds']:.1f} s to fill" if row["fill_seconds"] is not None else "nothing to fill"
        print(f"{row['test']:16} {row['avg_ts']:8.2f} ± {row['stddev_ts']:.2f} t/s, {filled}")
    for row in fresh:
        print(f"{row['test']:16} {row['avg_ts']:8.2f} ± {row['stddev_ts']:.2f} t/s, filled alone")
    print(f"whole {shared.rest:.1f} s ÷ (fill {fill:.1f} s + timed {shared.windows:.1f} s) = {ratio:.3f} (goal {GOAL})")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", type=int, nargs="+", default=[0, 4096, 16384, 32768 - 160])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    sys.exit(main(sorted(options.depths), options.threads))
