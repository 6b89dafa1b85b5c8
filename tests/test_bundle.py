"""A bundle: planned without its host, measured there without Ray or a database, and taken home once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bundle import make_bundle
from orchestrator.cli import main
from orchestrator.interchange.own_file import is_own, load_own
from orchestrator.interchange.records_in import load_records
from orchestrator.store import Store
from schema.bundle import Line, bundle_text, line_text, next_line, parse_bundle, parse_line
from schema.errors import PlanError, StoreError, UsageError
from schema.sweep import parse_sweep
from tests.stores import answers, count

ROOT = Path(__file__).parents[1]
SWEEP = """name: far
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [16], n_gen: [4]}
params: {n_threads: [physical, 1]}
repeat: 3
tags: {where: basement}
"""


def planned(text: str, **fields: Any) -> Any:
    values = {"run_uid": "run-far", "created_at": "2026-01-02T03:00:00Z", "version": "0.1.0"} | fields
    return make_bundle(parse_sweep(text, "far.yaml", Path("/srv/sweeps")), **values)


def jobs_of(text: str) -> list[Any]:
    return [job for group in planned(text).groups for job in group]


class Far:
    """A host that has Python and the packages of a worker, and neither Ray nor a database."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory = directory / "far"
        self.home = self.directory / "home"
        without = self.directory / "without"
        without.mkdir(parents=True)
        for name in ("ray", "sqlalchemy", "alembic", "click", "pydantic", "rich", "ruamel"):
            (without / f"{name}.py").write_text(f"raise ImportError('{name} is not to be imported here')\n")
        self.environment = os.environ | {
            "TOKFLEET_HOME": str(self.home),
            "TOKFLEET_LOCK": str(self.directory / "lock"),
            "TOKFLEET_PYTHON": python,
            "PYTHONPATH": f"{without}:{ROOT}",
        }

    def start(self, bundle: Path, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "worker", "--bundle", str(bundle), "--records", str(self.records), *arguments]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=self.environment | variables,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def measure(self, bundle: Path, *arguments: str, status: int = 0, **variables: str) -> str:
        process = self.start(bundle, *arguments, **variables)
        _, told = process.communicate(timeout=120)
        assert process.returncode == status, told
        return told

    @property
    def records(self) -> Path:
        return self.directory / "records.jsonl"

    def values(self, kind: str) -> list[Any]:
        found = (json.loads(line) for line in self.records.read_text().splitlines())
        return [line[kind] for line in found if kind in line]


@pytest.fixture
def far(tmp_path: Path, standin_python: str) -> Far:
    return Far(tmp_path, standin_python)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return the bundle that `tokfleet plan --bundle` wrote of the sweep."""
    (tmp_path / "far.yaml").write_text(SWEEP)
    assert main(["plan", str(tmp_path / "far.yaml"), "--bundle", str(tmp_path / "far.bundle")]) == 0
    return tmp_path / "far.bundle"


def test_a_plan_leaves_to_the_host_what_only_the_host_can_know() -> None:
    text = """
models: [{path: models/a.gguf}, {hf: "user/repo:Q4_K_M"}]
tests: {n_prompt: [512], n_gen: [128], n_depth: [0, 1000000]}
params: {n_threads: [physical, all, 4], n_gpu_layers: [0, all]}
"""
    jobs = jobs_of(text)
    assert len(jobs) == 2 * 4 * 3 * 2
    assert {job.settings.n_threads for job in jobs} == {"physical", "all", 4}
    assert {job.host_uid for job in jobs} == {"to be told"}
    assert {job.model.spec for job in jobs} == {"/srv/sweeps/models/a.gguf", "user/repo:Q4_K_M"}
    assert all(len({job.settings.n_gpu_layers for job in group}) == 1 for group in planned(text).groups)


def test_a_plan_drops_what_no_host_can_do_and_refuses_what_is_nothing_or_too_much() -> None:
    both = "models: [{path: a.gguf}]\ntests: {n_prompt: [8]}\nparams: {type_v: [q8_0, f16], flash_attn: [off]}\n"
    assert [job.settings.type_v for job in jobs_of(both)] == ["f16"]
    with pytest.raises(PlanError, match="nothing to run"):
        planned(both.replace("q8_0, f16", "q8_0"))
    many = "models: [{path: a.gguf}]\ntests: {n_prompt: [8]}\nparams: {n_threads: %s, poll: %s}\n"
    with pytest.raises(PlanError, match="more than the 20000 jobs"):
        planned(many % (list(range(1, 251)), list(range(1, 101))))


def test_rounds_alternate_in_a_bundle_as_in_a_run() -> None:
    text = "models: [{path: a.gguf}, {path: b.gguf}]\ntests: {n_prompt: [8]}\nacross: [models]\nrounds: 2\n"
    assert [Path(job.model.spec).name for job in jobs_of(text)] == ["a.gguf", "b.gguf", "b.gguf", "a.gguf"]


def test_a_bundle_comes_back_as_it_was_and_one_that_was_changed_does_not() -> None:
    bundle = planned(SWEEP)
    text = bundle_text(bundle)
    assert parse_bundle(text.encode(), "x") == bundle
    for bad in (text.replace('"seed":0', '"seed":1'), text[:-10], "[]", "{}", text.replace(":1,", ":2,", 1), ""):
        with pytest.raises(UsageError):
            parse_bundle(bad.encode(), "x")


def test_each_line_of_records_proves_itself_and_all_before_it() -> None:
    lines: list[Line] = []
    for kind, value in (("tokfleet_records", {"a": 1.5}), ("record", {"ü": [1, None]}), ("end", {})):
        lines.append(next_line(lines[-1] if lines else None, kind, value))
    texts = [line_text(line).encode() for line in lines]
    assert parse_line(None, texts[0]) == lines[0]
    assert parse_line(lines[0], texts[1]) == lines[1]
    assert parse_line(lines[0], texts[2]) is None
    assert parse_line(None, texts[1]) is None
    assert parse_line(lines[0], texts[1].replace(b"null", b"0")) is None
    for junk in (b"", b"[]", b"{}", b'{"a":1,"b":2}', b"[" * 100_000, b"\xff"):
        assert parse_line(None, junk) is None


def test_a_host_without_ray_and_database_measures_and_its_records_are_taken_home_once(
    far: Far, bundle: Path, store_url: str
) -> None:
    told = far.measure(bundle)
    assert "4 jobs measured" in told
    assert "tokfleet import" in told
    assert is_own(far.records)
    with Store.open(store_url) as store:
        first = load_records(far.records, store)
        assert (first.n_records, first.n_new, first.complete) == (4, 4, True)
        again = load_records(far.records, store)
        assert (again.n_records, again.n_new) == (4, 0)
        assert "4 known already" in load_own(far.records, store)
    (fingerprint, *_) = far.values("fingerprint")
    rows = answers(store_url, "SELECT run_name, host_uid, test, n_samples, method FROM results ORDER BY test_time")
    assert {row[1] for row in rows} == {fingerprint["host_uid"]}
    assert [(row[0], row[3], row[4]) for row in rows] == [("far", 3, "fake")] * 4
    assert answers(store_url, "SELECT host FROM hosts WHERE hardware_id IS NOT NULL") == [(fingerprint["hostname"],)]
    assert json.loads(answers(store_url, "SELECT DISTINCT tags FROM results")[0][0]) == {"where": "basement"}
    assert count(store_url, "run") == 1


def test_a_bundle_that_is_done_is_not_measured_again(far: Far, bundle: Path) -> None:
    far.measure(bundle)
    before = far.records.read_bytes()
    assert "4 jobs measured" in far.measure(bundle)
    assert far.records.read_bytes() == before


def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_doubled(far: Far, bundle: Path, store_url: str) -> None:
    process = far.start(bundle, TOKFLEET_STANDIN_TOKEN_SECONDS="0.05")
    deadline = time.monotonic() + 60
    while not (far.records.exists() and '"record":' in far.records.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    half = far.values("record")
    assert 0 < len(half) < 4
    with Store.open(store_url) as store:
        assert not load_records(far.records, store).complete
    assert "4 jobs measured" in far.measure(bundle)
    records = far.values("record")
    assert len({record["attempt_uid"] for record in records}) == len(records)
    assert len({record["job_uid"] for record in records if record["status"] == "measured"}) == 4
    with Store.open(store_url) as store:
        taken = load_records(far.records, store)
        assert taken.complete
        assert taken.n_new == len(records) - len(half)
    assert answers(store_url, "SELECT COUNT(*) FROM results") == [(4,)]
    assert answers(store_url, "SELECT COUNT(*) FROM attempt WHERE final") == [(4,)]


def test_a_line_that_a_crash_cut_is_taken_away_and_the_rest_goes_on(far: Far, bundle: Path) -> None:
    far.measure(bundle)
    lines = far.records.read_bytes().splitlines(keepends=True)
    far.records.write_bytes(b"".join(lines[:-1]) + lines[-1][:7])
    far.measure(bundle)
    assert far.records.read_bytes().splitlines(keepends=True)[:-1] == lines[:-1]
    assert len(far.values("end")) == 1


def test_a_file_that_is_none_of_ours_is_left_alone(far: Far, bundle: Path) -> None:
    for content in ("my thesis", "my thesis\n", '{"a": 1}\n'):
        far.records.write_text(content)
        assert "Name another file" in far.measure(bundle, status=2)
        assert far.records.read_text() == content


def test_a_failed_job_is_a_record_and_the_others_are_measured(far: Far, bundle: Path) -> None:
    told = far.measure(bundle, status=3, TOKFLEET_FAULT="abort@decode:2")
    assert "2 jobs measured, 2 failed" in told
    failed = [record for record in far.values("record") if record["status"] == "failed"]
    assert {record["failure"]["stage"] for record in failed} == {"decode"}


def test_a_model_that_is_not_there_is_named_and_found_later_in_the_directory_given(far: Far, tmp_path: Path) -> None:
    from worker.models import reference, resolve

    made = resolve(reference("synthetic", "test-tiny:Q8_0", tmp_path), tmp_path / "made", lambda *_: None)
    (tmp_path / "m.yaml").write_text("models: [{path: nowhere/m.gguf}]\ntests: {n_prompt: [16]}\nrepeat: 1\n")
    assert main(["plan", str(tmp_path / "m.yaml"), "--bundle", str(tmp_path / "m.bundle")]) == 0
    told = far.measure(tmp_path / "m.bundle", status=1)
    assert "not measured" in told
    assert "nowhere/m.gguf" in told
    assert far.values("end") == []
    models = tmp_path / "models"
    models.mkdir()
    (models / "m.gguf").write_bytes(made.path.read_bytes())
    assert "1 jobs measured" in far.measure(tmp_path / "m.bundle", "--models", str(models))
    (job,) = far.values("job")
    assert job["model"]["spec"] == str(models / "m.gguf")
    assert job["model"]["identity"] == f"sha256:{made.sha256}"


def test_records_of_another_bundle_or_host_are_not_added_to(far: Far, bundle: Path, tmp_path: Path) -> None:
    far.measure(bundle)
    assert main(["plan", str(tmp_path / "far.yaml"), "--bundle", str(tmp_path / "again.bundle")]) == 0
    assert "another bundle" in far.measure(tmp_path / "again.bundle", status=2)
    other_home = str(tmp_path / "other-home")
    assert "another host" in far.measure(bundle, status=2, TOKFLEET_HOME=other_home)


@pytest.fixture
def brought(far: Far, bundle: Path) -> Path:
    """Return the records of a bundle that was measured."""
    far.measure(bundle)
    return far.records


def forged(path: Path, change: Any) -> None:
    """Write the records anew, each value as `change` makes it, with hashes that fit."""
    lines: list[Line] = []
    for text in path.read_text().splitlines():
        found = json.loads(text)
        (kind,) = found.keys() - {"sha256"}
        lines.append(next_line(lines[-1] if lines else None, kind, change(kind, found[kind])))
    path.write_text("".join(f"{line_text(line)}\n" for line in lines))


def test_records_that_were_changed_are_refused_and_nothing_of_them_is_stored(brought: Path, store_url: str) -> None:
    text = brought.read_text()
    for bad in (
        text.replace('"elapsed_ns":', '"elapsed_ns":1', 1),
        "".join(text.splitlines(keepends=True)[1:]),
        "".join(text.splitlines(keepends=True)[:2] + text.splitlines(keepends=True)[3:]),
        text + "{}\n",
    ):
        brought.write_text(bad)
        with Store.open(store_url) as store, pytest.raises(StoreError, match="line"):
            load_records(brought, store)
        assert count(store_url, "run") == count(store_url, "attempt") == 0


def test_records_that_may_not_be_stored_are_refused_though_their_hashes_fit(brought: Path, store_url: str) -> None:
    original = brought.read_text()

    def set_to(kind: str, **fields: Any) -> Any:
        return lambda own, value: {**value, **fields} if own == kind else value

    for change in (
        set_to("record", run_uid="another"),
        set_to("record", host_uid="another"),
        set_to("record", number=-1),
        set_to("record", started_at="yesterday"),
        set_to("record", surprise=1),
        set_to("job", run_uid="another"),
        set_to("job", seed="x"),
        set_to("job", timeout_seconds=-1.0),
        set_to("fingerprint", hostname=7),
        set_to("fingerprint", host_uid=""),
        set_to("tokfleet_records", version=2),
        set_to("tokfleet_records", run={"run_uid": "x"}),
    ):
        brought.write_text(original)
        forged(brought, change)
        with Store.open(store_url) as store, pytest.raises(StoreError, match="Nothing of it was stored"):
            load_records(brought, store)
        assert count(store_url, "run") == count(store_url, "attempt") == count(store_url, "host") == 0


def test_a_bundle_can_be_measured_by_two_hosts_as_one_run(
    bundle: Path, tmp_path: Path, standin_python: str, store_url: str
) -> None:
    with Store.open(store_url) as store:
        for name in ("one", "two"):
            far = Far(tmp_path / name, standin_python)
            far.measure(bundle)
            load_records(far.records, store)
    assert count(store_url, "run") == 1
    assert answers(store_url, "SELECT COUNT(*), COUNT(DISTINCT host_uid) FROM results") == [(8, 2)]


def test_the_bundle_says_which_command_measures_it(bundle: Path, capsys: Any) -> None:
    assert main(["plan", str(bundle.with_suffix(".yaml")), "--bundle", str(bundle)]) == 0
    told = capsys.readouterr().err
    assert "python -m worker --bundle far.bundle" in told
    assert parse_bundle(bundle.read_bytes(), "x").n_jobs == 4
