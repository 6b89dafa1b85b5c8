"""What is handed over to a head comes out of the job's description as it went in, or is refused."""

import json
import random
import string

import pytest

from orchestrator.handover import (
    JOB_VARIABLE,
    Handover,
    as_metadata,
    from_environment,
    from_metadata,
    run_and_number,
    submission_id,
)
from schema.errors import ClusterError, UsageError

RUN = "0123456789abcdef" * 2
SWEEP = "name: 'Größe \"x\"'\nmodels: [{path: models/a.gguf}]\n# \u202e $(rm -rf /)\n"


def environment(metadata: dict[str, str]) -> dict[str, str]:
    return {JOB_VARIABLE: json.dumps({"runtime_env": {}, "metadata": {"job_submission_id": "x", **metadata}})}


def test_a_sweep_arrives_as_it_was_written() -> None:
    handover = Handover(run_uid=RUN, sweep=SWEEP, filename="a b.yaml", base="/srv/é", yes=True, db="/data/runs.db")
    assert from_environment(environment(as_metadata(handover))) == handover


def test_to_go_on_with_a_run_needs_no_sweep() -> None:
    handover = Handover(run_uid=RUN)
    assert from_metadata(as_metadata(handover)) == handover


def test_the_description_is_text_alone_as_ray_wants_it() -> None:
    assert all(isinstance(value, str) for value in as_metadata(Handover(run_uid=RUN, sweep=SWEEP)).values())


def test_a_sweep_that_one_variable_cannot_hold_is_refused() -> None:
    letters = random.Random(1).choices(string.ascii_letters, k=150_000)
    with pytest.raises(UsageError, match=r"too large to be handed over .* Copy it to the head"):
        as_metadata(Handover(run_uid=RUN, sweep="".join(letters)))


def test_a_long_sweep_that_repeats_itself_goes_through() -> None:
    handover = Handover(run_uid=RUN, sweep="# the same\n" * 50_000)
    assert from_metadata(as_metadata(handover)) == handover


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {JOB_VARIABLE: ""},
        {JOB_VARIABLE: "[]"},
        {JOB_VARIABLE: "{}"},
        environment({}),
        environment({"tokfleet": "no json"}),
        environment({"tokfleet": "[]"}),
        environment({"tokfleet": '{"sweep": "x"}'}),
        environment({"tokfleet": '{"run_uid": "a", "stranger": 1}'}),
        environment({"tokfleet": '{"run_uid": "a", "sweep": "0000"}'}),
    ],
)
def test_what_was_not_handed_over_by_us_is_refused_in_words(broken: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match="started by `tokfleet submit`"):
        from_environment(broken)


def test_a_sweep_that_unpacks_to_more_than_a_sweep_may_be_is_refused() -> None:
    packed = as_metadata(Handover(run_uid=RUN, sweep="x" * (1 << 20) + "y"))
    with pytest.raises(ValueError, match="too large"):
        from_metadata(packed)


def test_an_id_tells_the_run_and_the_number() -> None:
    assert run_and_number(submission_id(RUN, 3)) == (RUN, 3)
    for stranger in ("raysubmit_x", f"tokfleet-{RUN}", f"tokfleet-{RUN}-", f"tokfleet-{RUN}-1x", "tokfleet-ask-1"):
        assert run_and_number(stranger) is None
