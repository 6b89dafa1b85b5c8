"""Do decode rates stay below what the memory allows, and is what bounds them named as the thread curve says?

    python benchmarks/roofline.py [--shape llama-3.2-1b] [--threads 1 2] [--repetitions 5]

Probes this machine (`tokfleet probe`), then measures a decode of one synthetic model, many times larger than the
caches, as F16, Q8_0 and Q4_K_M with each number of threads, in one `tokfleet run`, and reads what is stored of it.
Passes where no share of the ceiling is above 1.05, each row names its bound, and that bound follows from the curve
as this script reads it: while more threads read more, or all cores add up, the cores; else the memory from a share
of 0.7 on, and the cores below. Prints `results --explain` of each row. Exit code: 0 pass, 1 not, 4 it
cannot be told: a probe is missing, or others took CPUs that a row needed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import CACHE
from benchmarks.overhead import TOKFLEET, ask

MIXES = ("F16", "Q8_0", "Q4_K_M")
DISTURBED = ("contended", "throttled", "limited")
MOST, MEMORY, RISES, ADDS_UP = 1.05, 0.7, 1.1, 0.8
COLUMNS = "model, n_threads, avg_ts, stddev_ts, bytes_per_token, read_bytes_per_s, cpu_cache_bytes"
OF_RUN = "from results where run_uid = '{run}' and kind = 'tg' order by test_time"
RATES = f"select {COLUMNS}, mbu, bound, quality, job_uid {OF_RUN}"
CURVE = "select points from probes where kind = 'memory_read' and series_uid is null order by taken_at desc limit 1"


def ours(home: Path, *arguments: str) -> str:
    """Return what `tokfleet` prints with these arguments in a home of its own."""
    environment = os.environ | {"TOKFLEET_HOME": str(home)}
    return subprocess.check_output([TOKFLEET, *arguments], env=environment, text=True)


def sweep(shape: str, threads: list[int], repetitions: int) -> str:
    """Return the sweep file."""
    models = ", ".join(f"{{synthetic: '{shape}:{mix}'}}" for mix in MIXES)
    asked = f"tests: {{n_prompt: 0, n_gen: 32}}\nparams: {{n_threads: {threads}}}\nrepeat: {repetitions}"
    return f"name: roofline\nmodels: [{models}]\n{asked}\n"


def curve_of(points: str) -> dict[int, float]:
    """Return the best undisturbed bytes per second for each number of threads."""
    found: dict[int, float] = {}
    for point in json.loads(points):
        disturbed = (point["min_cpu_share"] or 1.0) < 0.9
        value = point["top_bytes_per_s" if disturbed else "p95_bytes_per_s"]
        found[point["n_threads"]] = max(value, found.get(point["n_threads"], 0.0))
    return found


def expected(curve: dict[int, float], n_threads: int, mbu: float) -> str:
    """Return the bound that the curve and the share imply."""
    most = max(curve)
    adds_up = len(curve) > 1 and curve[most] >= ADDS_UP * most * curve[min(curve)] / min(curve)
    more = [value for n, value in curve.items() if n > n_threads]
    if adds_up or (more and max(more) > RISES * curve[n_threads]):
        return "cores"
    return "memory" if mbu >= MEMORY else "cores"


def line(row: dict[str, Any], wanted: str) -> str:
    """Return one row as it is printed."""
    caches = f"{row['bytes_per_token'] / row['cpu_cache_bytes']:.0f} × caches" if row["cpu_cache_bytes"] else "caches ?"
    return (
        f"{row['model']:24} {row['n_threads']} threads {row['avg_ts']:7.2f} ± {row['stddev_ts'] or 0:.2f} t/s × "
        f"{row['bytes_per_token'] / 1e9:.2f} GB ({caches}) ÷ {row['read_bytes_per_s'] / 1e9:.1f} GB/s = "
        f"{row['mbu']:.2f}, bound {row['bound']} (curve: {wanted}), {row['quality']}"
    )


def verdict(row: dict[str, Any], wanted: str) -> str:
    """Print one row and return what it is: `ok`, `MISS`, or `busy` where others took CPUs, so nothing can be told."""
    good = row["mbu"] <= MOST and row["bound"] == wanted
    busy = row["mbu"] <= MOST and row["bound"] is None and row["quality"] in DISTURBED
    found = "ok" if good else "busy" if busy else "MISS"
    print(f"{found:4} {line(row, wanted)}")
    return found


def main(shape: str, threads: list[int], repetitions: int) -> int:
    """Print every row and its explanation, and return the exit status."""
    home = CACHE / "roofline"
    home.mkdir(parents=True, exist_ok=True)
    print(ours(home, "probe"))
    (home / "sweep.yaml").write_text(sweep(shape, threads, repetitions))
    ours(home, "run", str(home / "sweep.yaml"), "--yes")
    run = ask("select run_uid from results order by test_time desc limit 1", home)[0]["run_uid"]
    rows, curve = ask(RATES.format(run=run), home), curve_of(ask(CURVE, home)[0]["points"])
    print("curve: " + ", ".join(f"{n} threads {value / 1e9:.1f} GB/s" for n, value in sorted(curve.items())))
    if any(row["mbu"] is None for row in rows) or set(threads) - set(curve):
        print("can't tell: a row has no share of the ceiling, or a number of threads is not in the curve")
        return 4
    verdicts = {verdict(row, expected(curve, row["n_threads"], row["mbu"])) for row in rows}
    for row in rows:
        print("\n" + ours(home, "results", "--explain", row["job_uid"]).rstrip())
    if "MISS" in verdicts or len(rows) != len(MIXES) * len(threads):
        return 1
    return 4 if "busy" in verdicts else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    sys.exit(main(options.shape, options.threads, options.repetitions))
