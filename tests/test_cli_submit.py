"""`submit`, `logs`, `cancel`, `status` and whatever else is asked of a head, which here only remembers."""

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator import jobs_api
from orchestrator.cli import HIDDEN, main
from orchestrator.cli.address import is_elsewhere
from orchestrator.cli.detaching import asking
from orchestrator.cli.there import told_apart
from orchestrator.driver_lock import driving_alone
from orchestrator.handover import Handover, as_metadata, from_metadata
from orchestrator.jobs_api import Jobs
from orchestrator.store import Store
from schema.job import Job
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.fake_jobs import FakeClient, FakeJob
from tests.stores import new_store

RUN = "ab" * 16
HEAD = ["--address", "http://head:8265"]
SWEEP = "name: night\nmodels: [{synthetic: 'test-tiny:Q8_0'}]\n"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeClient:
    """Return a head that has driven nothing yet, at whatever address."""
    fake = FakeClient()
    monkeypatch.setattr(jobs_api, "connect", lambda address=None: Jobs(fake, address or "http://127.0.0.1:8265"))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    for name in ("TOKFLEET_RAY_ADDRESS", "TOKFLEET_DB"):
        monkeypatch.delenv(name, raising=False)
    return fake


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with a run of three jobs, one of them measured, which is also what TOKFLEET_DB names."""
    path = new_store(tmp_path)
    jobs: list[Job] = [make_job(run_uid=RUN, replica=n) for n in range(3)]
    with Store.open(str(path)) as opened:
        opened.save_fingerprint(make_fingerprint())
        opened.save_run(make_run(run_uid=RUN), jobs)
        opened.save_records([make_record(jobs[0])])
    monkeypatch.setenv("TOKFLEET_DB", str(path))
    return path


def begins(client: FakeClient, log: str) -> Callable[..., str]:
    """Let each job that is submitted have this log, with {run_uid} filled in, and have ended with 0 after it."""
    real = client.submit_job

    def submit_job(**options: Any) -> str:
        uid = real(**options)
        made = client.jobs[uid]
        run_uid = from_metadata(made.metadata).run_uid if made.metadata else ""
        made.log = f"Running entrypoint for job {uid}: x\n" + log.format(run_uid=run_uid)
        return uid

    client.submit_job = submit_job  # type: ignore[method-assign]
    return submit_job


def ends(client: FakeClient, log: str, status: str, code: int | None) -> None:
    real = begins(client, log)

    def submit_job(**options: Any) -> str:
        uid = real(**options)
        client.jobs[uid].status, client.jobs[uid].driver_exit_code = status, code
        return uid

    client.submit_job = submit_job  # type: ignore[method-assign]


def test_submit_carries_the_sweep_and_returns_the_uid_once_the_run_has_begun(
    client: FakeClient, sweep: Path, capsys: Any
) -> None:
    begins(client, "boxa: 2 jobs\nRun {run_uid} begins: 2 jobs.\nlater\n")
    assert main(["submit", str(sweep), "--yes", "--max-hours", "8", "--db", "/data/x.db", *HEAD]) == 0
    out, err = capsys.readouterr()
    (made,) = client.jobs.values()
    handed = from_metadata(made.metadata)
    assert out == f"{handed.run_uid}\n"
    assert err.startswith("boxa: 2 jobs\n")
    assert "later" not in err
    assert f"`tokfleet logs {handed.run_uid[:8]} --follow`" in err
    assert (handed.sweep, handed.base, handed.yes, handed.db) == (SWEEP, str(sweep.parent), True, "/data/x.db")
    assert (handed.course["max_hours"], handed.course["when_quiet"]) == (8, False)
    assert made.entrypoint == "exec env TOKFLEET_RAY_ADDRESS=auto tokfleet drive"


def test_a_sweep_with_a_fault_is_refused_before_anything_is_sent(client: FakeClient, sweep: Path, capsys: Any) -> None:
    sweep.write_text("modles: []\n")
    assert main(["submit", str(sweep), *HEAD]) == 2
    assert "unknown key 'modles'; the nearest is `models`" in capsys.readouterr().err
    assert client.jobs == {}


def test_what_the_driver_refuses_is_told_and_its_status_is_ours(client: FakeClient, sweep: Path, capsys: Any) -> None:
    ends(client, "tokfleet: error: There is nothing to run: see the reasons above.\n", "FAILED", 1)
    assert main(["submit", str(sweep), *HEAD]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "There is nothing to run" in err


def test_a_head_without_tokfleet_is_told_how_to_have_it(client: FakeClient, sweep: Path, capsys: Any) -> None:
    ends(client, "env: 'tokfleet': No such file or directory\n", "FAILED", 127)
    assert main(["submit", str(sweep), *HEAD]) == 1
    assert "does not find the command tokfleet" in capsys.readouterr().err


def test_following_shows_all_and_ends_with_the_drivers_status(client: FakeClient, sweep: Path, capsys: Any) -> None:
    ends(client, "Run {run_uid} begins: 2 jobs.\nhalf \x1b[31mdone\n", "FAILED", 3)
    assert main(["run", str(sweep), *HEAD]) == 3
    assert capsys.readouterr().out.splitlines()[1:] == ["half \\x1b[31mdone"]


def test_logs_are_shown_without_what_could_move_the_cursor(client: FakeClient, capsys: Any) -> None:
    client.jobs["x"] = FakeJob(submission_id=f"tokfleet-{RUN}-1", log="Running entrypoint for job x: y\na\x1b[2Jb\nc\n")
    client.jobs[f"tokfleet-{RUN}-1"] = client.jobs.pop("x")
    assert main(["logs", "abab", *HEAD]) == 0
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\n"
    assert main(["logs", "--follow", *HEAD]) == 0
    assert capsys.readouterr().out == "a\\x1b[2Jb\nc\n"


def test_logs_of_a_run_that_was_never_submitted_say_so(client: FakeClient, capsys: Any) -> None:
    assert main(["logs", "f00", *HEAD]) == 1
    assert "has driven no run 'f00'" in capsys.readouterr().err


def test_cancel_at_a_head_ends_the_driver_and_says_what_it_said_last(client: FakeClient, capsys: Any) -> None:
    uid = f"tokfleet-{RUN}-1"
    last = "Interrupted; 2 jobs are left. `tokfleet resume abababab` measures them.\n"
    client.jobs[uid] = FakeJob(submission_id=uid, last_words=last)
    assert main(["cancel", "abab", *HEAD]) == 0
    assert client.jobs[uid].status == "STOPPED"
    out = capsys.readouterr().out
    assert "Run abababab is cancelled, and its hosts are free." in out
    assert out.endswith(last)
    assert main(["cancel", "abab", *HEAD]) == 1
    assert "its driver has stopped" in capsys.readouterr().out


def test_cancel_ends_the_driver_of_another_terminal_here(
    client: FakeClient, store: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(pid: int, number: int) -> None:
        assert (pid, number) == (os.getpid(), signal.SIGTERM)
        held.close()

    held = _Held(tmp_path / "home")
    monkeypatch.setattr(os, "kill", end)
    assert main(["cancel", RUN[:8]]) == 0
    out = capsys.readouterr().out
    assert "1 of 3 jobs are measured and kept, 0 failed, 2 are left." in out
    assert client.jobs == {}


class _Held:
    """A run that is driven until somebody closes it."""

    def __init__(self, home: Path) -> None:
        self._driving = driving_alone(home, RUN)
        self._driving.__enter__()

    def close(self) -> None:
        self._driving.__exit__(None, None, None)


def test_cancel_ends_a_driver_that_only_this_machines_head_knows(client: FakeClient, store: Path, capsys: Any) -> None:
    uid = f"tokfleet-{RUN}-2"
    client.jobs[uid] = FakeJob(submission_id=uid)
    assert main(["cancel", "latest"]) == 0
    assert client.jobs[uid].status == "STOPPED"
    assert "is cancelled: 1 of 3" in capsys.readouterr().out


def test_cancel_of_a_run_that_nobody_measures_says_so(client: FakeClient, store: Path, capsys: Any) -> None:
    assert main(["cancel", RUN[:4]]) == 1
    assert "Nobody measures run abababab on this machine" in capsys.readouterr().err
    client.fault = ConnectionError("refused")
    assert main(["cancel", RUN[:4]]) == 1
    assert "If another machine drives it, cancel it there." in capsys.readouterr().err


def test_a_run_that_is_not_in_the_store_cannot_be_cancelled(client: FakeClient, store: Path, capsys: Any) -> None:
    assert main(["cancel", "f00"]) == 1
    assert "has the uid 'f00'" in capsys.readouterr().err


def test_status_tells_who_drives_a_run(client: FakeClient, store: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["status", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["driver"] is None
    held = _Held(tmp_path / "home")
    assert main(["status", RUN, "--format", "json"]) == 0
    assert f"process {os.getpid()} of " in json.loads(capsys.readouterr().out)[0]["driver"]
    held.close()


def test_status_of_one_run_shows_its_hosts(client: FakeClient, store: Path, capsys: Any) -> None:
    assert main(["status", "latest"]) == 0
    out = capsys.readouterr().out
    assert "box-a" in out
    assert "last_ended_at" in out


def test_watching_ends_when_nobody_measures_the_run(client: FakeClient, store: Path, capsys: Any) -> None:
    assert main(["status", "--watch", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["n_remaining"] == 2
    assert "Nobody measures run abababab on this machine now." in err


def test_watching_shows_a_change_and_ends_with_the_run(
    client: FakeClient, store: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = _Held(tmp_path / "home")
    naps = []

    def measured_meanwhile(seconds: float) -> None:
        naps.append(seconds)
        with Store.open(str(store)) as opened:
            opened.save_records([make_record(opened.remaining_jobs(RUN)[0])])

    monkeypatch.setattr("orchestrator.cli.status.time.sleep", measured_meanwhile)
    assert main(["status", RUN, "--watch", "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["n_measured"] for row in rows] == [1, 2, 3]
    assert naps == [2.0, 2.0]
    held.close()


def test_asking_a_head_gives_its_answer_its_remarks_and_its_status(client: FakeClient, capsys: Any) -> None:
    ends(client, "out a,b\nerr note: \x1b[1m\nout 1,2\nstray\n", "FAILED", 3)
    assert main(["status", "abab", "--format", "csv", *HEAD]) == 3
    out, err = capsys.readouterr()
    assert out == "a,b\n1,2\n"
    assert err == "note: \\x1b[1m\nstray\n"
    (made,) = client.jobs.values()
    assert str(made.submission_id).startswith("tokfleet-ask-")
    assert made.entrypoint.endswith(" tokfleet there status abab --format csv")


@pytest.mark.parametrize(
    ("arguments", "there"),
    [
        (["hosts"], "there hosts"),
        (["hosts", "--quick", "--format", "json"], "there hosts --quick --format json"),
        (["hosts", "drain", "box a", "--why", "new fan"], "there hosts drain 'box a' --why 'new fan'"),
        (["hosts", "resume", "boxa"], "there hosts resume boxa"),
        (["status", "--watch"], "there status --watch"),
        (["resume", "abab", "--when-quiet"], "there resume abab --when-quiet --detach"),
        (["resume", "--detach"], "there resume --detach"),
    ],
)
def test_a_command_is_repeated_at_the_head_as_it_was_typed(
    client: FakeClient, arguments: list[str], there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKFLEET_DB", "/not/told")
    monkeypatch.setenv("TOKFLEET_RAY_ADDRESS", "http://head:8265")
    monkeypatch.delenv("COLUMNS", raising=False)
    ends(client, "", "SUCCEEDED", 0)
    assert main(arguments) == 0
    (made,) = client.jobs.values()
    assert made.entrypoint == f"exec env TOKFLEET_RAY_ADDRESS=auto tokfleet {there}"


def test_a_question_that_is_broken_off_is_ended_at_the_head_too(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_submission: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jobs, "follow", lambda _self, submission: broken(submission))
    assert main(["status", "--watch", *HEAD]) == 130
    (made,) = client.jobs.values()
    assert made.status == "STOPPED"


def test_at_the_head_each_line_is_marked_by_where_it_belongs(
    client: FakeClient, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="ascii"))
    assert main(["there", "status", "--format", "csv"]) == 0
    assert main(["there", "sql", "select 'é' as x"]) == 0
    assert main(["there", "status", "f00"]) == 1
    lines = out.getvalue().decode().splitlines()
    assert all(line.startswith("out ") for line in lines)
    assert "é" in lines[-1]
    assert err.getvalue().decode().startswith("err tokfleet: error: No run")
    assert told_apart(lines[0]) == ("run_uid,name,created_at,n_jobs,n_measured,n_failed,n_remaining,driver", True)


def test_what_only_the_head_runs_is_no_command_for_people(client: FakeClient, capsys: Any) -> None:
    assert main(["--help"]) == 0
    helped = capsys.readouterr().out
    assert not any(f"  {name} " in helped for name in HIDDEN)
    assert main(["drive"]) == 1
    assert "started by `tokfleet submit`" in capsys.readouterr().err


def test_what_was_handed_over_is_driven_with_its_choices(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from orchestrator.cli import measuring

    calls: list[tuple[Any, ...]] = []

    def keep(*called: Any, **named: Any) -> int:
        calls.append((*called, named))
        return 0

    monkeypatch.setattr(measuring, "measure_sweep", keep)
    monkeypatch.setattr(measuring, "measure_rest", keep)
    for handed in (
        Handover(run_uid=RUN, sweep=SWEEP, base="/srv", yes=True, course={"when_quiet": True}),
        Handover(run_uid=RUN, db="/data/x.db", course={"max_hours": 2.0}),
    ):
        described = json.dumps({"metadata": as_metadata(handed)})
        monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", described)
        assert main(["drive"]) == 0
    sweep, yes, choices, db, named = calls[0]
    assert (sweep.name, yes, choices.address, choices.when_quiet, db, named) == (
        *("night", True, "auto", True, None),
        {"run_uid": RUN},
    )
    uid, choices, db, _ = calls[1]
    assert (uid, choices.address, choices.max_hours, db) == (RUN, "auto", 2.0, "/data/x.db")


class Terminal(io.StringIO):
    """A terminal at which somebody types `answers`; None is Ctrl-C."""

    def __init__(self, *answers: str | None) -> None:
        super().__init__()
        self.answers = list(answers)

    def isatty(self) -> bool:
        return True

    def readline(self, *_: Any) -> str:  # type: ignore[override]
        answer = self.answers.pop(0)
        if answer is None:
            os.kill(os.getpid(), signal.SIGINT)
            return ""
        return answer


@pytest.mark.parametrize(
    ("answer", "detach"), [("\n", True), ("y\n", True), ("n\n", False), ("no\n", False), (None, False)]
)
def test_ctrl_c_asks_once_whether_to_detach_and_a_second_one_ends(
    answer: str | None, detach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal(answer)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(KeyboardInterrupt), asking(True) as asked:
        os.kill(os.getpid(), signal.SIGINT)
    assert asked.detach is detach
    assert terminal.getvalue().count("Leave it running") == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("can_detach", [True, False])
def test_without_a_head_or_a_terminal_nobody_is_asked(can_detach: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n") if not can_detach else io.StringIO("y\n"))
    with pytest.raises(KeyboardInterrupt), asking(can_detach) as asked:
        os.kill(os.getpid(), signal.SIGINT)
    assert not asked.was_asked


@pytest.mark.parametrize(("answer", "status", "lives"), [("\n", 0, True), ("n\n", 130, False)])
def test_ctrl_c_while_following_leaves_or_cancels_the_run(
    answer: str, status: int, lives: bool, client: FakeClient, sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def follow(_self: Jobs, _submission: str) -> Any:
        yield "one"
        raise KeyboardInterrupt

    monkeypatch.setattr(Jobs, "follow", follow)
    terminal = Terminal(answer)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["run", str(sweep), *HEAD]) == status
    made = next(iter(client.jobs.values()))
    assert (made.status == "RUNNING") is lives


def test_an_address_is_elsewhere_where_it_is_a_url() -> None:
    assert [is_elsewhere(each) for each in ("http://a:1", "https://a", "a:1", "auto", None)] == [
        True,
        True,
        *[False] * 3,
    ]
