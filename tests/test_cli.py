"""The command line as a whole: names, errors, exit statuses, and manners at a terminal, a pipe and a disk."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from orchestrator import cli
from orchestrator.cli import COMMANDS, LATER, MEANT, main, tokfleet
from orchestrator.cli.db import database_url, shown
from schema.errors import HostError, SweepError, TokfleetError

REPOSITORY = Path(__file__).parents[1]
TOKFLEET = [sys.executable, "-m", "orchestrator.cli"]


def started(*arguments: str, shell: str | None = None, **changes: str | None) -> subprocess.CompletedProcess[bytes]:
    """Run `tokfleet` as a process; `changes` to the environment, None takes a variable away."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **{k: v for k, v in changes.items() if v is not None}}
    for name in [name for name, value in changes.items() if value is None]:
        environment.pop(name, None)
    command = ["bash", "-c", shell, "bash", *TOKFLEET] if shell else [*TOKFLEET, *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep tokfleet's home of this machine out of the tests."""
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TOKFLEET_DB", raising=False)
    monkeypatch.delenv("TOKFLEET_DEBUG", raising=False)


def command_that(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a command `fails` in the table, which raises `error`."""
    module = ModuleType("orchestrator.cli.fails")

    @click.command()
    def fails() -> None:
        raise error

    vars(module)["fails"] = fails
    monkeypatch.setitem(sys.modules, "orchestrator.cli.fails", module)
    monkeypatch.setitem(COMMANDS, "fails", ("fails:fails", "Fail."))


def test_help_names_every_command_and_the_exit_statuses() -> None:
    text = CliRunner().invoke(tokfleet, ["--help"]).output
    for name, (_, help_text) in COMMANDS.items():
        assert f"  {name} " in text
        assert help_text in text
    assert "130 interrupted" in text


def test_without_arguments_the_help_is_shown(capsys: Any) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: tokfleet")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists_and_has_help(name: str, capsys: Any) -> None:
    assert main([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: tokfleet {name}")


def test_what_people_mean_leads_to_commands_that_exist() -> None:
    for name in MEANT.values():
        assert name.partition(" ")[0] in (*COMMANDS, "--help", "--version")
    assert not set(COMMANDS) & {*LATER, *MEANT}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["resluts"], "There is no command `resluts`. Did you mean `results`?"),
        (["sumbit", "x.yaml"], "Did you mean `submit`?"),
        (["compare", "boxa"], "`compare` is not in this version of tokfleet."),
        (["serve"], "`serve` is not in this version of tokfleet."),
        (["query", "SELEC 1"], "here it is `tokfleet sql`"),
        (["zzz"], "There is no command `zzz`."),
        (["results", "--limt", "3"], "Did you mean '--limit'?"),
        (["results", "--limit", "0"], "0 is not in the range"),
        (["results", "--limit", "99999999999999999999999999"], "the range"),
        (["results", "--format", "yaml"], "'table', 'csv', 'json', 'jsonl', 'markdown'"),
        (["model", "synht"], "Did you mean 'synth'?"),
    ],
)
def test_wrong_usage_is_answered_in_two_lines_with_status_2(arguments: list[str], said: str, capsys: Any) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("tokfleet: error: ")
    assert len(err.splitlines()) <= 2


def test_a_group_without_a_command_shows_its_help_with_status_2(capsys: Any) -> None:
    assert main(["db"]) == 2
    assert capsys.readouterr().err.startswith("Usage: tokfleet db")


def test_an_expected_error_is_its_text_and_its_status(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command_that(HostError("The box\x1b[31m is away."), monkeypatch)
    assert main(["fails"]) == 1
    assert capsys.readouterr().err == "tokfleet: error: The box\\x1b[31m is away.\n"


def test_every_fault_of_a_sweep_has_its_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command_that(SweepError(["a.yaml:1: one", "a.yaml:2: two"]), monkeypatch)
    assert main(["fails"]) == 2
    assert capsys.readouterr().err == "tokfleet: error: a.yaml:1: one\n  a.yaml:2: two\n"


def test_an_error_may_have_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    error = TokfleetError("It cannot be told.")
    error.exit_code = 4
    command_that(error, monkeypatch)
    assert main(["fails"]) == 4


def test_a_command_returns_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("orchestrator.cli.partly")
    vars(module)["partly"] = click.Command("partly", callback=lambda: 3)
    monkeypatch.setitem(sys.modules, "orchestrator.cli.partly", module)
    monkeypatch.setitem(COMMANDS, "partly", ("partly:partly", "Do a part."))
    assert main(["partly"]) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: Any, error: BaseException) -> None:
    command_that(error, monkeypatch)
    assert main(["fails"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command_that(PermissionError(13, "Permission denied", "/data/x"), monkeypatch)
    assert main(["fails"]) == 1
    assert capsys.readouterr().err == "tokfleet: error: /data/x: Permission denied.\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command_that(ModuleNotFoundError("No module named 'ray'", name="ray"), monkeypatch)
    assert main(["fails"]) == 1
    assert "needs the Python module ray" in capsys.readouterr().err


def test_a_bug_is_one_line_and_its_traceback_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    command_that(KeyError("n_gen"), monkeypatch)
    assert main(["fails"]) == 1
    err = capsys.readouterr().err
    (kept,) = (tmp_path / "home" / "tracebacks").iterdir()
    assert err == f"tokfleet: error: This is a bug in tokfleet: KeyError: 'n_gen' (the traceback is in {kept})\n"
    assert "raise error" in kept.read_text()


def test_a_bug_shows_its_traceback_when_asked(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TOKFLEET_DEBUG", "1")
    command_that(KeyError("n_gen"), monkeypatch)
    assert main(["fails"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_bug_without_a_home_is_still_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", "/proc/nonexistent")
    command_that(ValueError("one\ntwo"), monkeypatch)
    assert main(["fails"]) == 1
    assert capsys.readouterr().err == (
        "tokfleet: error: This is a bug in tokfleet: ValueError: one (TOKFLEET_DEBUG=1 shows the traceback)\n"
    )


def test_version_is_that_of_the_installed_package(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: {"tokfleet": "1.2.3"}[name])
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "tokfleet 1.2.3\n"
    assert cli.version() == "1.2.3"


def test_llama_bench_habits_are_explained_and_become_the_line_that_does_it(capsys: Any) -> None:
    assert main(["run", "-m", "tiny.gguf", "-p", "512,1024", "-ngl", "99"]) == 2
    out, err = capsys.readouterr()
    assert "`tokfleet bench` takes as they are" in err
    assert out == "tokfleet bench -m tiny.gguf -p 512,1024 -ngl 99\n"


def test_llama_bench_habits_of_submit_become_a_sweep_to_hand_over(capsys: Any) -> None:
    assert main(["submit", "-m", "tiny.gguf", "-p", "512,1024", "-r", "3"]) == 2
    assert capsys.readouterr().out == "tokfleet bench --print-sweep -m tiny.gguf -p 512,1024 -r 3\n"


@pytest.mark.parametrize("line", ["-p 0 -n 0", "-p -512", "-p 99999999999999999999", "-r 0"])
def test_silly_numbers_of_llama_bench_habits_get_one_line(line: str, capsys: Any) -> None:
    assert main(["run", *line.split(), "-m", "tiny.gguf"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1


def test_a_database_is_a_path_or_a_url_or_in_the_home(tmp_path: Path) -> None:
    assert database_url(None) == f"sqlite:///{tmp_path}/home/tokfleet.sqlite"
    assert not (tmp_path / "home").exists()
    assert database_url("", create=True) == f"sqlite:///{tmp_path}/home/tokfleet.sqlite"
    assert (tmp_path / "home").is_dir()
    assert database_url(str(tmp_path / "a b%.db")) == f"sqlite:///{tmp_path}/a b%.db"
    assert database_url("postgresql+psycopg://me:secret@box/db") == "postgresql+psycopg://me:secret@box/db"


def test_a_database_is_shown_without_its_password() -> None:
    assert shown("postgresql+psycopg://me:secret@box/db") == "postgresql+psycopg://me:***@box/db"
    assert shown("sqlite:////data/tokfleet.sqlite") == "/data/tokfleet.sqlite"


def test_models_are_listed_in_every_format(capsys: Any) -> None:
    for form in ("table", "csv", "json", "jsonl", "markdown"):
        assert main(["model", "list", "--format", form]) == 0
        assert "gemma-3-270m:Q4_K_M" in capsys.readouterr().out


def test_a_synthetic_model_is_made_where_it_is_wanted(tmp_path: Path, capsys: Any) -> None:
    assert main(["model", "synth", "test-tiny:Q8_0", "--out", str(tmp_path / "new" / "tiny.gguf")]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path}/new/tiny.gguf\n"
    assert "sha256 " in err
    assert (tmp_path / "new" / "tiny.gguf").read_bytes()[:4] == b"GGUF"


def test_an_unknown_shape_is_answered_with_the_nearest(capsys: Any) -> None:
    assert main(["model", "synth", "gema-3-270m"]) == 1
    assert "Did you mean gemma-3-270m?" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "markdown", "csv"])
def test_a_locale_without_unicode_prints_plainly(form: str) -> None:
    done = started("model", "list", "--format", form, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert done.stderr == b""


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    done = started("model", "list", COLUMNS="40", TERM="dumb", NO_COLOR="1")
    assert max(map(len, done.stdout.splitlines())) <= 40
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("command", ["model list", "--help", "model list --format csv"])
def test_a_reader_that_leaves_is_no_error(command: str) -> None:
    done = started(shell=f'"$@" {command} | head -1; exit ${{PIPESTATUS[0]}}')
    assert done.returncode in (0, 141)
    assert done.stderr == b""
    assert len(done.stdout.splitlines()) == 1


def test_a_reader_that_never_was_is_no_error() -> None:
    done = started(shell='"$@" model list | true; exit ${PIPESTATUS[0]}')
    assert done.returncode in (0, 141)
    assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["model list", "--help", "model list --format jsonl"])
def test_a_full_disk_is_one_line_and_status_1(command: str) -> None:
    done = started(shell=f'"$@" {command} > /dev/full')
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert "No space left on device" in done.stderr.decode()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed: str) -> None:
    done = started(shell=f'"$@" model list {closed}')
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("home", [None, "/proc/nonexistent", "relative"])
def test_a_home_that_is_not_there_is_one_line_that_says_what_to_set(home: str | None) -> None:
    # Without HOME the passwd entry counts, so a store may be there.
    done = started("sql", "select 1", TOKFLEET_HOME=None, TOKFLEET_DB=None, XDG_DATA_HOME=None, HOME=home)
    assert done.returncode in ((0, 1) if home is None else (1,))
    assert b"Traceback" not in done.stderr
    assert b"bug" not in done.stderr
    assert done.returncode == 0 or b"TOKFLEET_DB" in done.stderr


def test_a_temporary_directory_that_is_not_there_is_no_matter() -> None:
    assert started("model", "list", TMPDIR="/nonexistent").returncode == 0


@pytest.mark.parametrize(("into", "status"), [("| true; exit ${PIPESTATUS[0]}", 141), ("> /dev/full", 1)])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_sweep_file_that_nobody_takes_is_no_traceback(into: str, status: int) -> None:
    done = started(shell=f'"$@" run -m tiny.gguf -p 512 {into}')
    assert done.returncode == status
    assert b"Traceback" not in done.stderr


def test_a_measuring_python_means_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    Path("sweep.yaml").write_text("models: [{synthetic: 'test-tiny:Q8_0'}]\n")
    assert main(["plan", "sweep.yaml", "--python", "bin/python"]) == 1
    assert f"The measuring Python {tmp_path}/bin/python cannot be started" in capsys.readouterr().err


def test_json_on_a_pipe_is_only_json() -> None:
    assert len(json.loads(started("model", "list", "--format", "json").stdout)) > 4
