"""A process that is measuring ends when nobody holds the other end of its pipe, though it reads nothing meanwhile."""

import os
import subprocess
import sys
import time

from worker.variables import REPOSITORY

BUSY = """
import sys, time
from worker.orphans import die_with_writer
sys.stdin.readline()
die_with_writer(0)
print("busy", flush=True)
while True:
    time.sleep(0.001)
"""


def test_a_busy_process_ends_when_its_writer_closes_the_pipe_and_not_before() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUSY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(b"request\nleft unread\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"busy\n"
        time.sleep(0.5)
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == 1
