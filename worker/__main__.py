"""`python -m worker`: the measuring process, or with `--build` one line of JSON on the llama.cpp it would run.

With `--bundle FILE` it measures jobs that were carried here in a file: see `worker.bundle`.

It reads one line of JSON on stdin (`spec`, `assignments`), writes one line of JSON per event to the
descriptor named by `--events` (else stdout), and waits after each for a line on stdin, so that nobody
is at work on the last event while the next repetition is timed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.job import Assignment
from worker.orphans import die_with_parent, die_with_writer

Heard = Callable[[dict[str, Any]], None]


def main(engine: Any = None, heard: Heard = lambda _: None) -> None:
    """Run as told by the command line; ends with 0 when every event could be delivered.

    `engine` has what `worker.engine` and its `build` have and stands in for them; `heard` is told of each
    event that was acknowledged.
    """
    parser = argparse.ArgumentParser(prog="python -m worker", description=__doc__)
    parser.add_argument("--events", type=int, default=1, help="file descriptor for the events")
    parser.add_argument("--parent", type=int, help="process to die with")
    parser.add_argument("--build", action="store_true", help="print what llama.cpp is here and end")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a line after each event")
    _offer_bundles(parser)
    options = parser.parse_args()
    if options.bundle:
        from worker import bundle

        sys.exit(bundle.main(options.bundle, options.records, options.models, options.python))
    if options.parent:
        _die_with(options.parent)
    if options.build:
        _print_build(engine)
        return
    _be_first_to_go()
    request = json.loads(sys.stdin.readline())
    assignments = [decode(Assignment, item) for item in request["assignments"]]
    with os.fdopen(options.events, "w") as events:
        emit = _Emitter(events, not options.no_wait, heard)
        if "llama_bench" in request["spec"]:
            from worker import llama_bench

            llama_bench.run(request["spec"], assignments, emit)
        else:
            from worker import run

            run.run(request["spec"], assignments, emit, engine)


def _offer_bundles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="FILE", help="measure the jobs in FILE, without a cluster")
    parser.add_argument("--records", type=Path, metavar="FILE", help="of a bundle: where to keep what was measured")
    parser.add_argument("--models", type=Path, metavar="DIR", help="of a bundle: where its models are on this host")
    parser.add_argument("--python", metavar="PATH", help="of a bundle: the Python whose llama-cpp-python measures")


class _Emitter:
    def __init__(self, stream: Any, wait: bool, heard: Heard) -> None:
        self._stream, self._wait, self._heard = stream, wait, heard

    def __call__(self, event: dict[str, Any]) -> None:
        self._stream.write(json.dumps(event, allow_nan=False) + "\n")
        self._stream.flush()
        if self._wait and not sys.stdin.readline():
            sys.exit("the supervisor is gone")
        self._heard(event)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; end at once if that has happened already."""
    die_with_parent()
    if sys.platform != "linux":
        die_with_writer(sys.stdin.fileno())
    if os.getppid() != parent:
        sys.exit("the supervisor is gone")


def _be_first_to_go() -> None:
    """When memory runs out the kernel shall end this process, not Ray's or the database's."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("900")
    except OSError:
        pass


def _print_build(engine: Any) -> None:
    if engine is None:
        from worker.engine import build as engine

    sys.stdout.write(json.dumps({"build": asdict(engine.build_facts()), "files": engine.library_files()}) + "\n")


if __name__ == "__main__":
    main()
