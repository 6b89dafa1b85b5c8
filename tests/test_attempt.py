"""A measuring process that lies is not believed: one failed attempt, and the rest goes on."""

from pathlib import Path

import pytest

from schema.host import Fingerprint
from schema.job import ModelRef
from tests.supervised import DECODE, PREFILL, group_of, python_that, records
from worker.supervisor import Supervisor

HELPERS = """
def hear():
    return sys.stdin.readline()
assignments = json.loads(hear())["assignments"]
def say(**event):
    tell(**event)
    hear()
def sample(**changes):
    return {"repetition": 1, "n_tokens": 4, "elapsed_ns": 10, "gen_ns": 10, **changes}
def end(uid, **more):
    say(event="attempt_end", attempt_uid=uid, resolved={"n_threads": 1}, **more)
uid = assignments[0]["attempt_uid"]
if len(assignments) == 1:
    say(event="attempt_start", attempt_uid=uid)
    say(event="sample", attempt_uid=uid, sample=sample())
    end(uid)
    sys.exit()
"""


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("say(event='attempt_start', attempt_uid='another')", "KeyError('another')"),
        ("say(event='attempt_start')", "KeyError('attempt_uid')"),
        ("begin(); begin()", "the start of an attempt in the middle of another"),
        ("begin(); say(event='sample', sample=sample(n_tokens=3))", "a repetition of 3 tokens where tg4 has 4"),
        ("begin(); say(event='sample', sample=sample(elapsed_ns=0))", "a repetition that took no time"),
        ("begin(); say(event='sample', sample=sample(gen_ns=-1))", "a repetition that took no time"),
        ("begin(); say(event='sample', sample=sample(elapsed_ns='1'))", "TypeError"),
        ("begin(); say(event='sample', sample=sample(rate=1))", "TypeError"),
        ("begin(); say(event='sample', sample=7)", "TypeError"),
        ("begin(); say(event='stage', stage='lunch')", "stage lunch"),
        ("begin(); say(event='party')", "party None"),
        ("begin(); end(uid)", "the end of an attempt without a sample"),
        ("begin(); say(event='attempt_end', error=7)", "TypeError"),
        ("begin(); say(event='sample', sample=sample()); end(uid, latency=[1])", "TypeError"),
        ("begin(); say(event='sample', sample=sample()); end(uid, in_effect={'a': 1})", "TypeError"),
    ],
)
def test_what_cannot_be_is_not_believed_and_the_rest_goes_on(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, lie: str, words: str
) -> None:
    begin = "def begin():\n    say(event='attempt_start', attempt_uid=uid)\n"
    python = python_that(tmp_path, f"{HELPERS}{begin}{lie}\ntime.sleep(60)\n")
    group = group_of(model, DECODE, DECODE, timeout_seconds=50)
    events = list(Supervisor(group=group, fingerprint=fingerprint, home=tmp_path, python=python).run())
    first, second = records(events)
    assert (first.status, second.status) == ("failed", "measured")
    assert first.failure is not None
    assert first.failure.kind == "garbage"
    assert words in first.failure.message


def test_an_end_without_a_number_of_threads_is_none(model: ModelRef, fingerprint: Fingerprint, tmp_path: Path) -> None:
    body = (
        f"{HELPERS}say(event='attempt_start', attempt_uid=uid)\nsay(event='stage', stage='decode')\n"
        "say(event='sample', sample=sample())\nsay(event='attempt_end', attempt_uid=uid)\ntime.sleep(60)\n"
    )
    group = group_of(model, DECODE, DECODE, timeout_seconds=50)
    supervisor = Supervisor(group=group, fingerprint=fingerprint, home=tmp_path, python=python_that(tmp_path, body))
    first, second = records(list(supervisor.run()))
    assert first.failure is not None
    assert "KeyError('n_threads')" in first.failure.message
    assert second.status == "measured"


def test_whatever_keeps_the_model_from_being_made_is_heard_of(
    fingerprint: Fingerprint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: ModelRef
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("something nobody thought of")

    monkeypatch.setattr("worker.resolving.resolve", fail)
    events = Supervisor(group=group_of(model, PREFILL), fingerprint=fingerprint, home=tmp_path, python="none").run()
    (found,) = records(list(events))
    assert found.failure is not None
    assert (found.failure.stage, found.failure.message) == (
        "model",
        "The model cannot be made ready: something nobody thought of.",
    )
