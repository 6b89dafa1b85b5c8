"""What our way around the measuring costs: 24 short jobs over one model, against llama-bench on the same grid.

    python benchmarks/overhead.py [rounds]

Each round runs the grid once with `tokfleet run` (Ray, database, warm-up, one fresh context a job)
and once with llama-bench of the same source, in turns. Ours is taken from the first attempt's start
to the end of the command; the start before it (Python, plan, Ray) is printed apart. Printed too: the time
inside the timed windows, and what a job costs beyond it. Ends with 1 where ours ÷ llama-bench is above 1.10.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import llama_bench, model_file
from worker.variables import child_environment

TOKFLEET = str(Path(sys.executable).with_name("tokfleet"))
GOAL = 1.10
PROMPTS, GENERATED, THREADS, FLASH, REPETITIONS = (64, 128, 256), (16, 32, 64), (1, 2), ("on", "off"), 5
N_JOBS = (len(PROMPTS) + len(GENERATED)) * len(THREADS) * len(FLASH)
WINDOWS = "select sum(elapsed_ns) / 1e9 as windows from samples"
FIRST = "select min(test_time) as first, count(*) as n from results"


@dataclass(frozen=True)
class Ours:
    """Seconds until the first attempt began, from then to the end, and inside the timed windows."""

    start: float
    rest: float
    windows: float


def grid(model: Path) -> str:
    """Return the sweep file of the grid."""
    return (
        f"models: [{{path: {model}}}]\n"
        f"tests: {{n_prompt: {list(PROMPTS)}, n_gen: {list(GENERATED)}}}\n"
        f"params: {{n_threads: {list(THREADS)}, flash_attn: [{', '.join(FLASH)}]}}\n"
        f"repeat: {REPETITIONS}\n"
    )


def ours(text: str, n_jobs: int, home: Path) -> Ours:
    """Run the sweep in `text` with `tokfleet run` in a new home."""
    sweep = home / "sweep.yaml"
    sweep.write_text(text)
    environment = os.environ | {"TOKFLEET_HOME": str(home)}
    begun, now = time.monotonic(), datetime.now(UTC)
    command = [TOKFLEET, "run", str(sweep), "--yes"]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    whole = time.monotonic() - begun
    first = ask(FIRST, home)[0]
    if first["n"] != n_jobs:
        raise SystemExit(f"{first['n']} of {n_jobs} jobs were measured")
    start = (datetime.fromisoformat(first["first"]) - now).total_seconds()
    return Ours(start=start, rest=whole - start, windows=ask(WINDOWS, home)[0]["windows"])


def ask(query: str, home: Path) -> list[dict[str, Any]]:
    """Return the rows of a question to the database in `home`."""
    environment = os.environ | {"TOKFLEET_HOME": str(home)}
    answer = subprocess.check_output([TOKFLEET, "sql", query, "--format", "json"], env=environment)
    rows: list[dict[str, Any]] = json.loads(answer)
    return rows


def theirs(binary: Path, model: Path) -> float:
    """Return the seconds that llama-bench takes for the grid, from start to end."""
    command = [str(binary), "-m", str(model), "-r", str(REPETITIONS), "-o", "jsonl"]
    for flag, values in (("-p", PROMPTS), ("-n", GENERATED), ("-t", THREADS), ("-fa", FLASH)):
        command += [flag, ",".join(map(str, values))]
    begun = time.monotonic()
    done = subprocess.run(command, check=True, env=child_environment(), capture_output=True)
    if len(done.stdout.splitlines()) != N_JOBS:
        raise SystemExit(f"llama-bench measured {len(done.stdout.splitlines())} of {N_JOBS} jobs")
    return time.monotonic() - begun


def main(rounds: int) -> int:
    """Print the ratio of the medians and what it is made of, and return the exit status."""
    binary, model = llama_bench(), model_file("gemma")
    pairs: list[tuple[Ours, float]] = []
    for index in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            other = theirs(binary, model) if index % 2 else None
            mine = ours(grid(model), N_JOBS, Path(home))
            pairs.append((mine, other if other is not None else theirs(binary, model)))
        last, seconds = pairs[-1]
        print(f"ours {last.rest:.1f} s, {last.windows:.1f} s of it timed; llama-bench {seconds:.1f} s", flush=True)
    rest = statistics.median(each.rest for each, _ in pairs)
    windows = statistics.median(each.windows for each, _ in pairs)
    ratio = rest / statistics.median(seconds for _, seconds in pairs)
    print(f"ours ÷ llama-bench {ratio:.3f} (goal at most {GOAL}), {N_JOBS} jobs, {rounds} rounds")
    print(f"start of Python, plan and Ray {statistics.median(each.start for each, _ in pairs):.1f} s, apart from that")
    print(f"beyond its timed windows a job costs {1000 * (rest - windows) / N_JOBS:.0f} ms, warm-up included")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
