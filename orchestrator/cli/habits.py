"""llama-bench's options after `tokfleet run`, `plan`, `submit`: the line of `tokfleet bench` that does it (pure)."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.bench import OWN
from orchestrator.interchange.llama_bench import translate
from orchestrator.interchange.llama_bench_options import BY_NAME, REFUSED, Piece, known, pieces

ALSO = {"--repetition": "-r", "--repeat": "-r"}
"""What people write besides for an option of llama-bench."""


@dataclass(frozen=True, slots=True)
class Habit:
    """What to tell the person, a line for each thing, and the command that does it where there is one."""

    text: str
    line: str | None


def explain(arguments: Sequence[str]) -> Habit | None:
    """Return what these arguments of `run`, `plan` or `submit` mean here, None where none is llama-bench's.

    Raises UsageError where a value cannot be meant, or nothing is left to measure.
    """
    command, *words = arguments
    found = list(pieces([ALSO.get(word, word) for word in words], OWN))
    theirs = [piece for piece in found if known(piece.name)]
    if not theirs:
        return None
    kept = [piece for piece in theirs if piece.name not in REFUSED]
    if any(not known(piece.name, OWN) for piece in found):
        return Habit("\n".join([_in_a_sweep_file(kept), *_left_out(theirs)]), None)
    line = [word for piece in kept for word in piece.words]
    notes = [remark for remark in translate(line, Path("/")).notes if "Without -m" not in remark]
    text = "These are options of llama-bench, which `tokfleet bench` takes as they are. The line is printed here."
    return Habit("\n".join([text, *_left_out(theirs), *notes]), _command(command, found, line))


def _in_a_sweep_file(kept: Sequence[Piece]) -> str:
    names = {piece.name: BY_NAME[piece.name].key for piece in kept if piece.name in BY_NAME}
    said = ", ".join(f"{name} is {key}" for name, key in names.items()) or "none of them"
    return f"These are options of llama-bench; a sweep file has them by other names: {said}."


def _left_out(theirs: Sequence[Piece]) -> list[str]:
    names = dict.fromkeys(piece.name for piece in theirs if piece.name in REFUSED)
    return [f"{name} is left out: {REFUSED[name][0]}." for name in names]


def _command(command: str, found: Sequence[Piece], line: Sequence[str]) -> str:
    model = [] if {"-m", "--model"} & {piece.name for piece in found} else ["-m", "FILE.gguf"]
    own = [word for piece in found if piece.name in OWN for word in piece.words]
    show = ["--print-sweep"] if command in ("plan", "submit") else []
    return shlex.join(["tokfleet", "bench", *show, *model, *line, *own])
