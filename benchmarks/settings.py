"""Do our rates agree with llama-bench's under other settings than the defaults, and with llama-batched-bench's?

    python benchmarks/settings.py [--only flash_attn n_parallel] [--max-pairs 15]

One line for each setting: what is in effect on our side, and the ratio of the rates of the published Gemma 3 270M
(Q4_K_M), in ABBA pairs of new processes with the verdict of `benchmarks/fidelity.py`. With `n_parallel`, prefill and
decode of 1, 4 and 8 sequences at once are compared with llama-batched-bench of the same source. Exit code: 0 all
pass, 1 one misses or is not in effect, 4 one cannot be told on this machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import (
    BINDING,
    Measurement,
    attempt,
    cpu_seconds,
    llama_tool,
    measurement,
    model_file,
    pairs_of,
    theirs,
    verdict,
)
from schema.job import Test
from schema.settings import Settings
from worker.variables import child_environment

MAX_PAIRS = 15
PREFILL, DECODE = Test(n_prompt=256, n_gen=0), Test(n_prompt=0, n_gen=32)
DEEP = Test(n_prompt=0, n_gen=32, n_depth=512)
N_PROMPT, N_GEN, SEQUENCES = 64, 32, (1, 4, 8)


@dataclass(frozen=True)
class Case:
    """Settings that are not the defaults, and what must be in effect of them; `told` lists what is shown besides."""

    name: str
    test: Test
    settings: dict[str, Any] = field(default_factory=dict)
    in_effect: dict[str, Any] = field(default_factory=dict)
    told: tuple[str, ...] = ()


def same(name: str, test: Test, **settings: Any) -> Case:
    """Return a case whose settings must all be in effect as asked."""
    return Case(name, test, settings, settings)


CASES = (
    same("n_threads", DECODE, n_threads=1),
    same("n_batch", PREFILL, n_batch=128, n_ubatch=128),
    same("n_ubatch", PREFILL, n_ubatch=64),
    same("type_k", DEEP, type_k="q8_0"),
    same("type_v", DEEP, type_v="q8_0", flash_attn="on"),
    same("flash_attn on", DEEP, flash_attn="on"),
    same("flash_attn off", DEEP, flash_attn="off"),
    Case("n_depth", Test(n_prompt=0, n_gen=32, n_depth=1024), told=("n_ctx",)),
    Case("pg", Test(n_prompt=128, n_gen=16), told=("n_ctx",)),
    same("load_mode", DECODE, load_mode="none"),
    same("cpu_mask", DECODE, n_threads=1, cpu_mask="0x1", cpu_strict="on"),
    Case("poll", DECODE, {"poll": 0}),
    Case("no_kv_offload", DECODE, {"no_kv_offload": "on"}, told=("no_kv_offload", "n_gpu_layers")),
    same("repack", PREFILL, repack="off"),
    same("embeddings", PREFILL, embeddings="on"),
)
UNTOLD = ("cpu_strict",)
"""Settings that nothing reads back, so that they need not be in effect to pass."""


@dataclass
class Ours:
    """Measures a test again and again, a process each; `end` is what the last told of itself."""

    model: Path
    test: Test
    settings: Settings
    part: str = "elapsed_ns"
    end: dict[str, Any] = field(default_factory=dict)

    def __call__(self) -> Measurement:
        """Return the rate of one measurement: of the whole, or of its prompt or tokens (`part`)."""
        samples, self.end = attempt(self.model, self.test, 1, self.settings)
        if self.part == "elapsed_ns":
            return measurement(samples)
        n_tokens = self.test.n_prompt if self.part == "prompt_ns" else self.test.n_gen
        whole = measurement(samples)
        return Measurement(1e9 * n_tokens * self.test.n_parallel / samples[0][self.part], whole.cpu_share)

    def in_effect(self, name: str) -> Any:
        """Return the value of a setting that was in effect; None where nothing told."""
        return self.end.get("in_effect", {}).get(name, {}).get("value")


def compare(case: Case, model: Path, binary: Path, n_threads: int, max_pairs: int) -> tuple[int, str]:
    """Return exit code and line of one case."""
    settings = Settings(**({"n_threads": n_threads} | case.settings))
    mine = Ours(model, case.test, settings)
    other = partial(theirs, binary, model, case.test, 1, settings)
    code, told = verdict(*pairs_of(mine, other, max_pairs))
    wrong = {
        name: mine.in_effect(name)
        for name, value in case.in_effect.items()
        if mine.in_effect(name) != value and name not in UNTOLD
    }
    shown = {name: mine.in_effect(name) for name in (*case.in_effect, *case.told)}
    listed = " ".join(f"{name}={'untold' if value is None else value}" for name, value in shown.items())
    line = f"{case.name:15} {case.test.name:12} in effect: {listed or 'nothing tells'}; {told}"
    return (1, f"{line}  NOT IN EFFECT: {wrong}") if wrong else (code, line)


@dataclass
class Batched:
    """Runs llama-batched-bench for `n` sequences; `speed` names the rate of its row that counts."""

    binary: Path
    model: Path
    n: int
    n_threads: int
    speed: str

    def __call__(self) -> Measurement:
        """Return the rate of the second of two equal rows, and the CPU share while it was made: the first warms up."""
        n_ctx = self.n * (N_PROMPT + N_GEN)
        command = [str(self.binary), "-m", str(self.model), "-c", str(n_ctx), "-t", str(self.n_threads)]
        command += ["-b", "2048", "-ub", "512", "-npp", str(N_PROMPT), "-ntg", str(N_GEN), "-npl", f"{self.n},{self.n}"]
        command += ["--output-format", "jsonl"]
        environment = child_environment() | dict([BINDING])
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        with subprocess.Popen(command, stdout=pipe, stderr=quiet, text=True, bufsize=1, env=environment) as process:
            assert process.stdout is not None
            rows = (json.loads(line) for line in process.stdout if line.startswith("{"))
            next(rows, None)
            busy, begun = cpu_seconds(process.pid), time.monotonic()
            row = next(rows, None)
            busy, spent = cpu_seconds(process.pid) - busy, time.monotonic() - begun
            process.stdout.read()
        if process.returncode or row is None:
            raise SystemExit(f"llama-batched-bench failed with {process.returncode}")
        return Measurement(row[self.speed], busy / (spent * self.n_threads))


def compare_sequences(n: int, part: str, model: Path, binary: Path, n_threads: int, max_pairs: int) -> tuple[int, str]:
    """Return exit code and line of `n` sequences side by side, for their prompts or their tokens."""
    test = Test(n_prompt=N_PROMPT, n_gen=N_GEN, n_parallel=n)
    mine = Ours(model, test, Settings(n_threads=n_threads), part)
    speed = "speed_pp" if part == "prompt_ns" else "speed_tg"
    other = Batched(binary, model, n, n_threads, speed)
    code, told = verdict(*pairs_of(mine, other, max_pairs), other="llama-batched-bench")
    found = mine.in_effect("n_seq_max")
    name = f"n_parallel {n}"
    line = f"{name:15} {'prefill' if part == 'prompt_ns' else 'decode':12} in effect: n_seq_max={found}; {told}"
    return (1, f"{line}  NOT IN EFFECT") if found != n else (code, line)


def main() -> int:
    """Compare every setting asked for, printing a line as each is known."""
    names = [*(case.name.split()[0] for case in CASES), "n_parallel"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=names, choices=sorted(set(names)), help="settings to compare")
    parser.add_argument("--max-pairs", type=int, default=MAX_PAIRS, help="give up after so many")
    options = parser.parse_args()
    model = model_file("gemma")
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus)  # both sides inherit the same mask
    most, n_threads = options.max_pairs, len(cpus)
    todo: list[Callable[[], tuple[int, str]]] = []
    for case in CASES:
        if case.name.split()[0] in options.only:
            todo.append(partial(compare, case, model, llama_tool("llama-bench"), n_threads, most))
    if "n_parallel" in options.only:
        binary = llama_tool("llama-batched-bench")
        for n in SEQUENCES:
            for part in ("prompt_ns", "gen_ns"):
                todo.append(partial(compare_sequences, n, part, model, binary, n_threads, most))
    codes = []
    for each in todo:
        code, line = each()
        codes.append(code)
        print(line, flush=True)
    return max((code for code in codes if code == 1), default=max(codes))


if __name__ == "__main__":
    sys.exit(main())
