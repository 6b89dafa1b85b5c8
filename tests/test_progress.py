import io
import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from orchestrator.cli.progress import Progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    """A stream whose other end has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def ticking(*seconds: float) -> Iterator[float]:
    yield from seconds
    while True:
        yield seconds[-1]


def measure_two(progress: Progress) -> None:
    progress.stage("building tiny.gguf", 0.0)
    progress.stage("building tiny.gguf", 0.1)
    progress.stage("building tiny.gguf", 0.6)
    progress.job_started(1, "pp512")
    progress.sample(1, 2, 965.1)
    progress.sample(2, 2, 970.2)
    progress.job_ended("pp512", 967.6, 3.6)
    progress.job_started(2, "tg128")
    progress.job_ended("tg128", None, None, "killed\nby the system")
    progress.note("one remark\nin two lines")


def test_without_a_terminal_there_is_one_plain_line_per_job_and_stage() -> None:
    stream = io.StringIO()
    with Progress(2, 60.0, stream) as progress:
        measure_two(progress)
    assert stream.getvalue().splitlines() == [
        "building tiny.gguf 0%",
        "building tiny.gguf 60%",
        "[1/2] pp512: 967.6 +/- 3.6 t/s",
        "[2/2] tg128: failed: killed\\nby the system",
        "one remark",
        "in two lines",
    ]


def test_without_a_terminal_there_is_no_carriage_return_and_no_escape_code() -> None:
    stream = io.StringIO()
    with Progress(2, None, stream) as progress:
        measure_two(progress)
        progress.job_ended("box\r\x1b[2J", 1.0)
    assert not set(stream.getvalue()) & set("\r\x1b")


def test_one_repetition_has_an_unknown_spread() -> None:
    stream = io.StringIO()
    with Progress(1, None, stream) as progress:
        progress.job_ended("tg128", 92.6, None)
    assert stream.getvalue() == "[1/1] tg128: 92.60 +/- ? t/s\n"


def test_at_a_terminal_one_line_is_kept_up_to_date_and_removed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    with Progress(2, 60.0, stream) as progress:
        progress.job_started(1, "pp512 [4 threads]")
        progress.sample(1, 2, 965.1)
        during = stream.getvalue()
        progress.job_ended("pp512 [4 threads]", 967.6, 3.6)
    assert "0/2 jobs" in during
    assert "pp512 [4 threads] · repetition 1 of 2 · 965.1 t/s" in during
    assert "left" in during
    assert "[1/2] pp512 [4 threads]: 967.6 ± 3.6 t/s\n" in stream.getvalue()
    assert "jobs" not in stream.getvalue().rpartition("\x1b[2K")[2]


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(2, None, stream) as progress:
        measure_two(progress)
    assert not set(stream.getvalue()) & set("\r\x1b")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_stream_that_closes_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    closing = Terminal()
    with Progress(2, None, closing) as progress:
        closing.close()
        measure_two(progress)
    with Progress(2, None, Full()) as progress:
        measure_two(progress)


def test_standard_error_may_be_closed_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with Progress(2) as progress:
        measure_two(progress)


def test_a_terminal_that_hangs_up_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    master, slave = os.openpty()
    stream = os.fdopen(slave, "w")
    with Progress(2, None, stream) as progress:
        os.close(master)
        measure_two(progress)
    with suppress(OSError):
        stream.close()


def test_what_is_left_starts_as_planned_and_follows_the_pace() -> None:
    clock = ticking(0.0, 0.0, 30.0, 100.0)
    progress = Progress(2, 100.0, io.StringIO(), lambda: next(clock))
    assert progress.seconds_left == 100.0
    progress.job_started(1, "a")
    progress.job_ended("a", 1.0)
    assert progress.seconds_left == pytest.approx(0.5 * (0.5 * 100 + 30))
    progress.job_ended("b", 1.0)
    assert progress.seconds_left == 0


def test_what_is_left_is_unknown_without_a_plan_until_something_is_finished() -> None:
    clock = ticking(0.0, 10.0, 20.0)
    progress = Progress(4, None, io.StringIO(), lambda: next(clock))
    assert progress.seconds_left is None
    progress.job_ended("a", 1.0)
    assert progress.seconds_left == pytest.approx(60.0)


def test_a_run_without_jobs_has_nothing_left() -> None:
    with Progress(0, None, io.StringIO()) as progress:
        assert progress.seconds_left == 0
