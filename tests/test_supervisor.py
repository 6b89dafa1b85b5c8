import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from schema.host import Fingerprint
from schema.job import Group, ModelRef
from schema.record import Record
from tests.supervised import BOTH, DECODE, PREFILL, group_of, records, supervise
from worker.recovery import recover, trim
from worker.supervisor import Supervisor


def test_a_group_is_measured_in_one_process_and_every_sample_comes_back(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    events = supervise(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python)
    first, second = records(events)
    assert events[0]["event"] == "host"
    assert (first.status, second.status) == ("measured", "measured")
    assert [s.n_tokens for s in first.samples] == [8, 8, 8]
    assert [s.repetition for s in second.samples] == [1, 2, 3]
    assert second.latency is not None
    assert sum(second.latency.histogram) == 12
    assert first.placement is not None
    assert second.placement is not None
    assert first.placement.child_pid == second.placement.child_pid
    assert first.resolved["n_threads"] == first.in_effect["n_threads"].value
    assert first.model is not None
    assert (first.model.synthetic, len(first.model.sha256)) == (True, 64)
    assert first.hardware_id == fingerprint.hardware.hardware_id


@pytest.mark.parametrize(
    ("fault", "kind", "signal_name", "words"),
    [
        ("abort", "abort", "SIGABRT", "was aborted by llama.cpp (SIGABRT)"),
        ("segv", "signal", "SIGSEGV", "killed by SIGSEGV"),
        ("kill", "signal", "SIGKILL", "killed by SIGKILL"),
        ("exit0", "no_result", None, "ended without a result"),
        ("exit7", "exit", None, "exit code 7"),
        ("garbage", "garbage", "SIGKILL", "not an event"),
        ("decode1", "error", None, "no room left in the context"),
        ("oom", "oom", None, "MemoryError"),
    ],
)
@pytest.mark.parametrize("stage", ["load", "context", "warmup", "decode"])
def test_a_death_of_any_kind_in_any_stage_is_one_failed_attempt_and_the_rest_goes_on(
    model: ModelRef,
    fingerprint: Fingerprint,
    tmp_path: Path,
    standin_python: str,
    fault: str,
    kind: str,
    signal_name: str | None,
    words: str,
    stage: str,
) -> None:
    only = "" if stage == "load" else "#4"
    events = supervise(
        group_of(model, PREFILL, DECODE, BOTH), fingerprint, tmp_path, standin_python, f"{fault}@{stage}{only}"
    )
    found = records(events)
    assert [r.attempt_uid for r in found] == ["attempt-0", "attempt-1", "attempt-2"]
    failed = [r for r in found if r.status == "failed"]
    assert [r.attempt_uid for r in failed] == (["attempt-1"] if only else ["attempt-0", "attempt-1", "attempt-2"])
    failure = failed[0].failure
    assert failure is not None
    assert (failure.stage, failure.kind, failure.signal) == (stage, kind, signal_name)
    assert words in failure.message
    if kind not in ("error", "oom"):
        assert any(f"about to {fault} in {stage}" in line for line in failure.log_tail)


def test_a_hang_is_ended_at_the_jobs_limit_and_named(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = group_of(model, PREFILL, DECODE, timeout_seconds=2.0)
    first, second = records(supervise(group, fingerprint, tmp_path, standin_python, "hang@prefill"))
    assert first.failure is not None
    assert (first.failure.kind, first.failure.stage) == ("timeout", "prefill")
    assert "limit of 2 s" in first.failure.message
    assert second.status == "measured"


def test_a_process_that_dies_before_its_first_word_costs_one_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    found = records(supervise(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python, "exit0@start"))
    assert [r.failure.stage for r in found if r.failure] == ["start", "start"]


def test_a_measuring_python_that_cannot_be_started_is_a_failed_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path
) -> None:
    found = records(supervise(group_of(model, PREFILL), fingerprint, tmp_path, str(tmp_path / "nothing")))
    assert found[0].failure is not None
    assert "cannot be started: No such file" in found[0].failure.message


def test_a_model_that_is_gone_fails_each_attempt_in_the_model_stage(
    fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    gone = ModelRef(source="path", spec=str(tmp_path / "gone.gguf"), identity="sha256:0")
    found = records(supervise(group_of(gone, PREFILL, DECODE), fingerprint, tmp_path, standin_python))
    assert [r.failure.stage for r in found if r.failure] == ["model", "model"]


def test_samples_before_a_failure_stay_with_the_failed_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    events = Supervisor(
        group=group_of(model, DECODE), fingerprint=fingerprint, home=tmp_path, python=standin_python
    ).run()
    found: list[Record] = []
    for event in events:
        if event["event"] == "sample" and event["sample"]["repetition"] == 2:
            _kill_children()
        found += records([event])
    assert found[0].status == "failed"
    assert len(found[0].samples) == 2


def _kill_children() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        child.send_signal(signal.SIGKILL)


def test_what_a_killed_supervisor_had_measured_is_recovered_once_and_closed_as_interrupted(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    _supervise_and_die(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python)
    first, second = records(list(recover(tmp_path)))
    assert first.status == "measured"
    assert second.failure is not None
    assert (second.failure.kind, second.failure.stage, len(second.samples)) == ("interrupted", "interrupted", 1)
    assert second.hardware_id == fingerprint.hardware.hardware_id
    assert records(list(recover(tmp_path))) == [first, second]
    trim(tmp_path, frozenset({"attempt-0"}))
    assert len(list(recover(tmp_path))) == 2
    trim(tmp_path, frozenset({"attempt-0", "attempt-1"}))
    assert list(recover(tmp_path)) == []
    assert list((tmp_path / "journal").iterdir()) == []


def _supervise_and_die(group: Group, fingerprint: Fingerprint, home: Path, python: str) -> None:
    """Run a supervisor in a process that is killed after the first sample of its second attempt."""
    told = json.dumps({"group": asdict(group), "fingerprint": asdict(fingerprint)})
    script = (
        "import json, os, signal, sys\n"
        "from pathlib import Path\n"
        "from schema.canonical import decode\n"
        "from schema.host import Fingerprint\nfrom schema.job import Group\nfrom worker.supervisor import Supervisor\n"
        "told = json.loads(sys.stdin.readline())\n"
        "events = Supervisor(group=decode(Group, told['group']), fingerprint=decode(Fingerprint, told['fingerprint']),"
        " home=Path(sys.argv[1]), python=sys.argv[2]).run()\n"
        "for event in events:\n"
        "    if event['event'] == 'sample' and event['attempt_uid'] == 'attempt-1':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = str(Path(__file__).parents[1])
    end = subprocess.run(
        [sys.executable, "-c", script, str(home), python], input=told + "\n", text=True, cwd=root, check=False
    )
    assert end.returncode == -signal.SIGKILL


def test_a_half_written_last_line_of_a_journal_is_left_out(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    _supervise_and_die(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python)
    (path,) = (tmp_path / "journal").iterdir()
    with path.open("ab") as file:
        file.write(b'{"event": "sam')
    assert [r.status for r in records(list(recover(tmp_path)))] == ["measured", "failed"]
    assert [r.status for r in records(list(recover(tmp_path)))] == ["measured", "failed"]


def test_a_journal_that_is_being_written_is_nobodys_to_recover(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    events: Iterator[dict[str, Any]] = Supervisor(
        group=group_of(model, PREFILL), fingerprint=fingerprint, home=tmp_path, python=standin_python
    ).run()
    while next(events)["event"] != "sample":
        pass
    assert _recovered_elsewhere(tmp_path) == 0
    list(events)
    assert _recovered_elsewhere(tmp_path) == 1


def _recovered_elsewhere(home: Path) -> int:
    script = (
        "import sys; from pathlib import Path; from worker.recovery import recover\n"
        "print(len(list(recover(Path(sys.argv[1])))))"
    )
    root = str(Path(__file__).parents[1])
    return int(subprocess.check_output([sys.executable, "-c", script, str(home)], text=True, cwd=root))


def test_closing_the_events_early_ends_the_measuring_process(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    import psutil

    def living() -> list[psutil.Process]:
        """Return what runs below us; what another test has killed and not waited for is dead."""
        below = psutil.Process().children(recursive=True)
        return [process for process in below if process.status() != psutil.STATUS_ZOMBIE]

    events = Supervisor(
        group=group_of(model, PREFILL), fingerprint=fingerprint, home=tmp_path, python=standin_python
    ).run()
    while next(events)["event"] != "sample":
        pass
    assert living()
    begun = time.monotonic()
    events.close()  # type: ignore[attr-defined]
    assert not living()
    assert time.monotonic() - begun < 9
