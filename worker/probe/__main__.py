"""`python -m worker.probe`: the probing process. One line of JSON in on stdin, one line of JSON per event on stdout.

It is a process of its own because the linear algebra under numpy reads its environment when it is loaded,
and because whatever goes wrong with it must end nothing else.
"""

import argparse
import json
import os
import sys
from typing import Any

from schema.canonical import decode
from worker.orphans import die_with_parent
from worker.probe.course import Course
from worker.probe.kernels import Kernels
from worker.probe.request import Request


def main() -> None:
    """Measure what is asked for on stdin; ends with 0 when all events are written."""
    parser = argparse.ArgumentParser(prog="python -m worker.probe", description=__doc__)
    parser.add_argument("--parent", type=int, help="process to die with")
    parent = parser.parse_args().parent
    if parent:
        die_with_parent()
        if os.getppid() != parent:
            sys.exit("whoever wanted to know is gone")
    request = decode(Request, json.loads(sys.stdin.readline()))
    kernels = Kernels()
    emit({"event": "kernels", "numpy": kernels.numpy, "blas": kernels.blas(), "missing": kernels.missing or None})
    Course(request, kernels, emit).run()
    emit({"event": "end"})


def emit(event: dict[str, Any]) -> None:
    """Write one event."""
    sys.stdout.write(json.dumps(event, allow_nan=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
