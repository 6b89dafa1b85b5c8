"""What py-cpuinfo says of the processor, asked in a process of its own that is ended when it takes too long."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from schema.cpu_name import cpu_key
from worker.fingerprint import program
from worker.fingerprint.cpuinfo import Block
from worker.fingerprint.evidence import Notes

SECONDS = 10.0
FIELDS = ("vendor_id_raw", "brand_raw", "family", "model", "stepping", "flags")
"""All that is used of py-cpuinfo: its clock, cache sizes and count are often wrong, so /sys tells those."""

OLDER_NAMES = {"brand": "brand_raw", "vendor_id": "vendor_id_raw"}
"""What two of the fields were called before version 6."""

BLOCK_KEYS = {
    "vendor_id": "vendor_id_raw",
    "model name": "brand_raw",
    "cpu family": "family",
    "model": "model",
    "stepping": "stepping",
}
"""The names that /proc/cpuinfo has for the same facts."""


def start() -> subprocess.Popen[bytes] | None:
    """Return `python -m cpuinfo --json`, just started in a session of its own; None where it cannot start.

    It is a process of its own because it keeps a core busy for a second, and has been seen to hang.
    """
    command = [sys.executable, "-P", "-m", "cpuinfo", "--json"]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def finish(process: subprocess.Popen[bytes] | None, notes: Notes, seconds: float = SECONDS) -> dict[str, Any]:
    """Return the fields we use of what py-cpuinfo printed; empty, with a note, where it failed or took too long."""
    if process is None:
        notes.missing("pycpuinfo", "python -m cpuinfo could not be started")
        return {}
    output = program.ended(process, seconds)
    if output is None:
        notes.missing("pycpuinfo", f"python -m cpuinfo did not end within {seconds:g} s")
        return {}
    return used_fields(output.decode("utf-8", "replace"), notes)


def used_fields(output: str, notes: Notes) -> dict[str, Any]:
    """Return the fields we use of py-cpuinfo's JSON text, dropping those of the wrong type.

    `{}` is an answer, the one for architectures that it does not know: it is no error, and `sources` says it.
    """
    try:
        parsed = json.loads(output)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        notes.missing("pycpuinfo", "python -m cpuinfo --json printed no facts")
        return {}
    if not parsed:
        notes.found("pycpuinfo", "python -m cpuinfo knows nothing of this processor")
    facts = {new: parsed[old] for old, new in OLDER_NAMES.items() if old in parsed} | parsed
    return {key: facts[key] for key in FIELDS if _is_of_its_type(key, facts.get(key))}


def _is_of_its_type(key: str, value: object) -> bool:
    if key == "flags":
        return isinstance(value, list) and all(isinstance(flag, str) for flag in value)
    if key in ("family", "model", "stepping"):
        # It says -1 for a number that it could not read.
        return type(value) is int and value >= 0
    return isinstance(value, str)


def told(blocks: list[Block], facts: Mapping[str, Any]) -> tuple[list[Block], frozenset[str]]:
    """Return the blocks of an x86's /proc/cpuinfo with py-cpuinfo's answers in them, and the names of those answers.

    Both read the same text, so an answer that is not there is left as /proc/cpuinfo has it; so is one where
    the CPUs differ, since py-cpuinfo looks at the first alone. Without a /proc/cpuinfo the answers are a block.
    """
    answers = {key: str(facts[field]) for key, field in BLOCK_KEYS.items() if facts.get(field) not in (None, "")}
    if cpu_key(answers.get("model name")) is None:
        answers.pop("model name", None)
    if not blocks:
        return ([answers] if answers else []), frozenset(answers)
    if not any("flags" in block for block in blocks):
        return blocks, frozenset()
    alike = {key: answer for key, answer in answers.items() if len({b[key] for b in blocks if key in b}) < 2}
    described = [block | alike if "flags" in block else block for block in blocks]
    return described, frozenset(alike)
