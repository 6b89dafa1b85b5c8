"""`tokfleet fingerprint`: groups for people, everything for programs, and what its user is told."""

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from schema.canonical import decode
from schema.host import Allocation, Fingerprint
from tests.factories import make_fingerprint
from worker.fingerprint import take

SOURCES = {"cpu_quota_cores": "no control group limits it", "n_cpus": "sched_getaffinity"}


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standin_python: str) -> Fingerprint:
    """Return the fingerprint that the command finds."""
    found = make_fingerprint(
        allocation=Allocation(n_cpus=8),
        sources=SOURCES,
        errors=("governor: the kernel shows no frequency scaling",),
        cloned_from="host-of-before",
    )

    def taken(home: Path, build: Any) -> Fingerprint:
        return found

    monkeypatch.setattr(take, "take", taken)
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKFLEET_PYTHON", standin_python)
    return found


def test_people_get_groups_with_sources(fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fingerprint"]) == 0
    shown = capsys.readouterr().out.splitlines()

    titles = [line.split("  ")[0] for line, below in pairwise(shown) if below.startswith("---")]
    assert titles[0] == "host"
    assert titles[-1] == "ids"
    assert "CPU quota     none       no control group limits it" in shown
    assert any(line.startswith("NUMA nodes") and "not known" in line for line in shown)


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"]])
def test_programs_get_all_of_it(fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["fingerprint", *words]) == 0
    sent = json.loads(capsys.readouterr().out)

    assert sent["hardware"].pop("hardware_id") == fingerprint.hardware.hardware_id
    for part in ("allocation", "environment", "build"):
        del sent[part][f"{part}_id"]
    assert decode(Fingerprint, sent) == fingerprint


def test_the_other_formats_list_one_fact_a_line(fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fingerprint", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert {"fact": "allocation.n_cpus", "value": "8", "source": "sched_getaffinity"} in rows
    assert {"fact": "cloned_from", "value": "host-of-before", "source": ""} in rows


def test_the_user_is_told_that_the_home_is_a_copy_and_what_is_not_known(
    fingerprint: Fingerprint, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["fingerprint"])
    told = capsys.readouterr().err

    assert "This home was copied from host host-of-before, which is another machine." in told
    assert "not known: governor: the kernel shows no frequency scaling" in told
