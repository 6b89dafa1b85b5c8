"""`python -m worker`: the measuring process, or with `--build` one line of JSON on the llama.cpp it would run.

It reads one line of JSON on stdin (`spec`, `assignments`), writes one line of JSON per event to the
descriptor named by `--events` (else stdout), and waits after each for a line on stdin, so that nobody
is at work on the last event while the next repetition is timed.
"""

import argparse
import ctypes
import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from schema.canonical import decode
from schema.job import Assignment


def main() -> None:
    """Run as told by the command line; ends with 0 when every event could be delivered."""
    parser = argparse.ArgumentParser(prog="python -m worker", description=__doc__)
    parser.add_argument("--events", type=int, default=1, help="file descriptor for the events")
    parser.add_argument("--parent", type=int, help="process to die with")
    parser.add_argument("--build", action="store_true", help="print what llama.cpp is here and end")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a line after each event")
    options = parser.parse_args()
    if options.parent:
        _die_with(options.parent)
    if options.build:
        _print_build()
        return
    _be_first_to_go()
    request = json.loads(sys.stdin.readline())
    assignments = [decode(Assignment, item) for item in request["assignments"]]
    from worker.run import run

    with os.fdopen(options.events, "w") as events:
        run(request["spec"], assignments, _Emitter(events, wait=not options.no_wait))


class _Emitter:
    def __init__(self, stream: Any, wait: bool) -> None:
        self._stream = stream
        self._wait = wait

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event, allow_nan=False) + "\n")
        self._stream.flush()
        if self._wait and not sys.stdin.readline():
            sys.exit("the supervisor is gone")


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; end at once if that has happened already."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the supervisor is gone")


def _be_first_to_go() -> None:
    """When memory runs out the kernel shall end this process, not Ray's or the database's."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("900")
    except OSError:
        pass


def _print_build() -> None:
    from worker.engine.build import build_facts, library_files

    sys.stdout.write(json.dumps({"build": asdict(build_facts()), "files": library_files()}) + "\n")


if __name__ == "__main__":
    main()
