import io
from typing import Any

import pytest

from orchestrator.cli.output import OutputError, confirm, note, terminal_width, write, write_rows
from schema.errors import UsageError


class Disk(io.StringIO):
    """A stream on a disk without room."""

    encoding = "ascii"

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


class Answering(io.StringIO):
    """A terminal at which somebody has typed the answer."""

    def isatty(self) -> bool:
        return True


def test_lines_are_written_as_the_stream_can_hold_them() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    write(["965 ± 12 t/s", "Müller"], stream)
    assert raw.getvalue() == b"965 +/- 12 t/s\nM\\xfcller\n"


def test_a_full_disk_is_an_error_in_one_sentence() -> None:
    with pytest.raises(OutputError, match=r"^The output could not be written: No space left on device\.$"):
        write(["row"], Disk())


def test_a_closed_pipe_stays_a_closed_pipe() -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        write(["row"], Pipe())


def test_nothing_happens_where_standard_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    write(["row"])
    write_rows(("a",), [(1,)])


def test_a_remark_never_goes_to_standard_output(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stderr", None)
    note("nobody reads this")
    assert capsys.readouterr().out == ""


def test_an_empty_remark_is_an_empty_line(capsys: Any) -> None:
    note("")
    assert capsys.readouterr().err == "\n"


@pytest.mark.parametrize(
    ("columns", "width"), [("40", 40), ("0", None), ("-3", None), ("wide", None), ("", None), ("²", None)]
)
def test_columns_limits_the_width_where_it_is_a_width(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int | None
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal_width(io.StringIO()) == width


def test_rows_follow_the_width(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    write_rows(("host", "model"), [("boxa", "tiny.gguf")])
    assert capsys.readouterr().out == "host   boxa\nmodel  tiny.gguf\n"


def test_a_question_nobody_can_answer_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin in (None, io.StringIO("y\n")):
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(UsageError, match=r"Measure 900 jobs\? There is nobody to ask here: answer with --yes\."):
            confirm("Measure 900 jobs?")


@pytest.mark.parametrize(("typed", "answer"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_question_at_a_terminal_is_answered_there(monkeypatch: pytest.MonkeyPatch, typed: str, answer: bool) -> None:
    monkeypatch.setattr("sys.stdin", Answering(typed))
    assert confirm("Measure 900 jobs?") is answer
