"""What `tokfleet --help` costs, as a multiple of `python -c "import click"`, the least that any click program pays.

Both are started in turn, so that a busy machine slows both. Prints the ratio of the minima
and of the medians; ends with 1 where the ratio of the minima is above 2.

    python benchmarks/startup.py [rounds]
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

GOAL = 2.0


def command() -> list[str]:
    """Return the installed `tokfleet` of this environment, or the module where it is not installed."""
    script = Path(sys.executable).with_name("tokfleet")
    return [str(script)] if script.exists() else [sys.executable, "-m", "orchestrator.cli"]


def seconds(argv: list[str]) -> float:
    """Return the wall time of one process from start to end."""
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[1])
    return time.perf_counter() - start


def main(rounds: int) -> int:
    """Print the ratio, and return the exit status."""
    ours, least = [*command(), "--help"], [sys.executable, "-c", "import click"]
    seconds(ours), seconds(least)  # byte-compile and fill the page cache
    pairs = [(seconds(ours), seconds(least)) for _ in range(rounds)]
    help_seconds, click_seconds = zip(*pairs, strict=True)
    ratio = min(help_seconds) / min(click_seconds)
    median = statistics.median(help_seconds) / statistics.median(click_seconds)
    print(f"{' '.join(ours)}: {min(help_seconds):.3f} s; import click: {min(click_seconds):.3f} s ({rounds} rounds)")
    print(f"ratio of the minima {ratio:.2f}, of the medians {median:.2f}; goal at most {GOAL:g}")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
