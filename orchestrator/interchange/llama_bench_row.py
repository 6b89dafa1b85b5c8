"""A stored measurement as the command line of llama-bench that repeats it (pure)."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from schema.errors import UsageError
from schema.job import Job
from schema.settings import Settings
from worker.llama_bench import CannotError, arguments

REPETITIONS = 5
SERVERS = "LLAMA_ARG_RPC"


def command_line(job: Job, row: Mapping[str, Any]) -> str:
    """Return what to type in a shell to repeat `job` with llama-bench, with the environment that was in force.

    `row` is the job's row of the view `results` or `failures`: a number of threads asked for by a symbol
    is the one it had, and a synthetic model the file that was measured. Raises UsageError where
    llama-bench cannot do what was measured.
    """
    environment = _environment(job, row)
    servers = environment.pop(SERVERS, "")
    words = ["llama-bench", "-m", _model(job, row), *_arguments(job, row)]
    words += ["--rpc", servers] if servers else []
    words += ["-r", str(job.repetitions)] if job.repetitions != REPETITIONS else []
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in environment.items()), *_shell(words)])


def _arguments(job: Job, row: Mapping[str, Any]) -> list[str]:
    settings = job.settings
    if row.get("n_threads") is not None and row.get("n_threads") == row.get("n_threads_batch"):
        settings = replace(settings, n_threads_batch="same")
    try:
        return arguments(job.test, settings, _threads(settings, row))
    except CannotError as error:
        raise UsageError(f"{error}, so no command of it repeats this row.") from error


def _environment(job: Job, row: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that were in force, as the attempt noted them, and those of the sweep."""
    noted = row.get("env") or {}
    noted = json.loads(noted) if isinstance(noted, str) else noted
    return {**noted, **job.settings.environment}


def _model(job: Job, row: Mapping[str, Any]) -> str:
    if job.model.source == "path":
        return job.model.spec
    return row.get("model_filename") or f"$(tokfleet model synth {job.model.spec})"


def _threads(settings: Settings, row: Mapping[str, Any]) -> int | None:
    """Return the number of threads; None where it is llama-bench's own default, one for each core."""
    if isinstance(settings.n_threads, int):
        return settings.n_threads
    number = row.get("n_threads")
    if number is None and settings.n_threads != "physical":
        raise UsageError(
            f"How many threads `{settings.n_threads}` were is not stored with this row; it failed too early."
        )
    return number


def _shell(words: list[str]) -> list[str]:
    """Return the words as a shell takes them; `$(…)` that we wrote stays one."""
    return [f'"{word}"' if word.startswith("$(tokfleet ") else shlex.quote(word) for word in words]
