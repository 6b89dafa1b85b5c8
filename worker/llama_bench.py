"""A llama-bench binary as a build: asked what it is, run for each job, its samples taken over (stdlib only).

What it does not report stays unknown: settings in effect, latencies, load time. Its rows say `method = llama-bench`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from schema.errors import HostError
from schema.host import Build, Device
from schema.job import Assignment, Job, Test
from schema.record import Sample
from schema.settings import PRIORITIES, Settings
from worker.orphans import die_with_parent
from worker.variables import child_environment, in_force

Emit = Callable[[dict[str, Any]], None]
LIMIT_SECONDS = 60.0
FLAGS = {
    "n_batch": "-b",
    "n_ubatch": "-ub",
    "type_k": "-ctk",
    "type_v": "-ctv",
    "flash_attn": "-fa",
    "n_gpu_layers": "-ngl",
    "n_cpu_moe": "-ncmoe",
    "split_mode": "-sm",
    "main_gpu": "-mg",
    "tensor_split": "-ts",
    "tensor_buft_overrides": "-ot",
    "devices": "-dev",
    "no_kv_offload": "-nkvo",
    "no_op_offload": "-nopo",
    "no_host": "--no-host",
    "embeddings": "-embd",
    "repack": "--repack",
    "load_mode": "-lm",
    "lazy_mode": "-lzm",
    "cpu_mask": "-C",
    "cpu_strict": "--cpu-strict",
    "poll": "--poll",
    "prio": "--prio",
    "numa": "--numa",
}
"""Setting -> llama-bench's flag for it."""

VALUES: dict[str, dict[str, str]] = {
    "prio": {word: str(number) for word, number in PRIORITIES.items()},
    "lazy_mode": {},
    "n_gpu_layers": {"all": "-1"},
}
SWITCH = {"on": "1", "off": "0"}
STAGES = ((r"warmup", "warmup"), (r"depth run", "fill"), (r"prompt run", "prefill"), (r"generation run", "decode"))


class CannotError(Exception):
    """llama-bench cannot do what the job asks for, or failed; the text says why."""


def arguments(test: Test, settings: Settings, n_threads: int | None) -> list[str]:
    """Return llama-bench's arguments for what a job measures; defaults of its own are left out.

    `n_threads` None leaves it to llama-bench.

    Raises CannotError for what llama-bench has no flag for.
    """
    if "f32" in (settings.type_k, settings.type_v):
        raise CannotError("llama-bench cannot keep the cache as f32")
    if test.n_parallel > 1:
        raise CannotError(f"llama-bench cannot measure {test.n_parallel} sequences side by side")
    if test.n_verify:
        raise CannotError(f"llama-bench cannot time a pass that verifies {test.n_verify} tokens")
    if settings.n_threads_batch not in ("same", settings.n_threads):
        apart = f"({settings.n_threads_batch}) than for tokens ({settings.n_threads})"
        raise CannotError(f"llama-bench cannot use other threads for a prompt {apart}")
    if test.kind == "pg":
        told = ["-p", "0", "-n", "0", "-pg", f"{test.n_prompt},{test.n_gen}"]
    else:
        told = ["-p", str(test.n_prompt), "-n", str(test.n_gen)]
    told += ["-d", str(test.n_depth)] * bool(test.n_depth) + ["-t", str(n_threads)] * (n_threads is not None)
    for name, value in settings.beyond_defaults().items():
        if name in FLAGS:
            told += [FLAGS[name], VALUES.get(name, SWITCH).get(str(value), str(value))]
    return told


def find_llama_bench(path: str) -> Build:
    """Return what the llama-bench at `path` says of itself; raises HostError where it cannot be run."""
    try:
        digest = sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise HostError(f"The llama-bench {path} cannot be read: {error.strerror}.") from error
    said, listed, helped = (_ask(path, option) for option in ("--version", "--list-devices", "--help"))
    if "--n-prompt" not in helped:
        raise HostError(f"{path} is no llama-bench: its --help does not name --n-prompt.")
    version = re.search(r"version: (\d+) \((\w+)\)", said)
    compiler = re.search(r"built with (.+)", said)
    devices = re.findall(r"^\s+(\S+): (.+)$", listed.partition("devices")[2], re.MULTILINE)
    names = [re.sub(r"\d+$", "", name) for name, _ in devices]
    return Build(
        binding="llama-bench" + (f" {version[1]}" if version else ""),
        llama_cpp_commit=version[2] if version and version[2] != "unknown" else None,
        library_sha256=digest,
        compiler=compiler[1].strip() if compiler else None,
        backends=tuple(dict.fromkeys([*names, "CPU"])),
        devices=(*(f"{name} ({text})" for name, text in devices), "CPU"),
        gpu_offload=bool(devices),
        offload_devices=tuple(_device(name, text) for name, text in devices if "(0 MiB" not in text),
        method="llama-bench",
    )


def _device(name: str, text: str) -> Device:
    """Return a device as `--list-devices` prints it, with the memory it says it has in all."""
    told = re.fullmatch(r"(.+) \((\d{1,9}) MiB, \d+ MiB free\)", text)
    return Device(name=name, description=told[1] if told else text, memory_bytes=int(told[2]) << 20 if told else None)


def _ask(path: str, option: str) -> str:
    try:
        answer = subprocess.run(
            [path, option],
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise HostError(f"The llama-bench {path} cannot be started: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{path} {option} did not end within {LIMIT_SECONDS:g} s.") from error
    return answer.stdout.decode("utf-8", "replace")


def run(spec: dict[str, Any], assignments: list[Assignment], emit: Emit) -> None:
    """Measure `assignments` with the binary `spec["llama_bench"]`, a process each; stop after the first that fails.

    Emits what `worker.run.run` emits; the samples come together at the end of each job.
    """
    for assignment in assignments:
        uid = assignment.attempt_uid
        emit({"event": "attempt_start", "attempt_uid": uid})
        emit({"event": "stage", "stage": "load"})
        try:
            row = _measure(spec, assignment.job, emit)
            for sample in samples(row, assignment.job):
                emit({"event": "sample", "attempt_uid": uid, "sample": asdict(sample)})
        except CannotError as error:
            emit({"event": "attempt_end", "attempt_uid": uid, "error": str(error)})
            return
        emit({"event": "attempt_end", "attempt_uid": uid, **_told(row, assignment.job, spec)})


def _n_threads(job: Job, spec: dict[str, Any]) -> int:
    n = job.settings.n_threads
    return int(spec["n_threads"][n]) if isinstance(n, str) else n


def _measure(spec: dict[str, Any], job: Job, emit: Emit) -> dict[str, Any]:
    asked = ["-r", str(job.repetitions), *arguments(job.test, job.settings, _n_threads(job, spec))]
    command = [spec["llama_bench"], "-m", spec["path"], "-o", "jsonl", "--progress", *asked]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent,
    ) as process:
        last = _follow(process.stderr, emit)
        out = process.stdout.read().decode("utf-8", "replace") if process.stdout else ""
    if process.returncode:
        raise CannotError(f"llama-bench {_how_it_ended(process.returncode)}: {last or 'it gave no reason'}")
    return one_row(out)


def _follow(stream: Any, emit: Emit) -> str:
    """Pass the log on to our own, tell of each stage as it begins, and return the last lines in one."""
    stage, last = "load", ["", ""]
    for raw in stream:
        line = raw.decode("utf-8", "replace").rstrip()
        sys.stderr.write(line + "\n")
        begun = next((name for pattern, name in STAGES if re.search(pattern, line)), None)
        if begun is None and line:
            last = [last[1], line]
        if begun is not None and begun != stage:
            stage = begun
            emit({"event": "stage", "stage": stage, "elsewhere": True})
    return "; ".join(line.strip() for line in last if line)


def _how_it_ended(returncode: int) -> str:
    return f"ended with exit code {returncode}" if returncode > 0 else f"was ended by signal {-returncode}"


def one_row(text: str) -> dict[str, Any]:
    """Return the one JSON object that llama-bench printed; CannotError where there is none, or more."""
    rows = [row for row in map(_json, text.splitlines()) if isinstance(row, dict)]
    if len(rows) != 1:
        raise CannotError(f"llama-bench printed {len(rows)} results where one was asked for")
    return rows[0]


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def samples(row: dict[str, Any], job: Job) -> Iterator[Sample]:
    """Yield the repetitions of a row of llama-bench; CannotError where it measured something else."""
    told = (row.get("n_prompt"), row.get("n_gen"), row.get("n_depth", 0))
    test = job.test
    if told != (test.n_prompt, test.n_gen, test.n_depth):
        raise CannotError(f"llama-bench measured n_prompt, n_gen, n_depth {told}, not those of {test.name}")
    times = row.get("samples_ns")
    if not isinstance(times, list) or len(times) != job.repetitions or not all(_is_time(ns) for ns in times):
        raise CannotError(f"llama-bench gave no usable samples_ns: {times!r:.80}")
    for repetition, ns in enumerate(times, 1):
        yield Sample(
            repetition=repetition,
            n_tokens=test.n_tokens,
            elapsed_ns=ns,
            prompt_ns=ns if test.kind == "pp" else None,
            gen_ns=ns if test.kind == "tg" else None,
        )


def _is_time(ns: Any) -> bool:
    return isinstance(ns, int) and not isinstance(ns, bool) and ns > 0


def _told(row: dict[str, Any], job: Job, spec: dict[str, Any]) -> dict[str, Any]:
    n_threads = _n_threads(job, spec)
    facts = {name: row[name] for name in ("model_type", "model_size", "model_n_params") if name in row}
    resolved = asdict(job.settings) | {"n_threads": n_threads, "n_threads_batch": n_threads}
    return {"resolved": resolved, "model": facts, "env": in_force(os.environ)}
