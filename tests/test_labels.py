"""Tags, notes and marks on runs, hosts and results; and what old attempts can do without."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator import labels
from orchestrator.cli import main
from orchestrator.prune import prunable, prune
from orchestrator.store import Store
from schema.errors import StoreError, UsageError
from schema.job import Test
from tests.factories import make_failure, make_fingerprint, make_job, make_record, make_run
from tests.stores import answers, count

PP, TG = make_job(), make_job(test=Test(n_prompt=0, n_gen=128))


@pytest.fixture
def lab(store_url: str) -> str:
    """Return a store with a run of two measured jobs and a failed one, and an older run of one of them."""
    failing = make_job(test=Test(n_prompt=9000, n_gen=0))
    earlier = make_job(run_uid="run-0")
    with Store.open(store_url) as store:
        store.save_fingerprint(make_fingerprint())
        store.save_run(make_run(run_uid="run-0", created_at="2025-01-01T00:00:00Z"), [earlier])
        store.save_run(make_run(), [PP, TG, failing])
        store.save_records(
            [
                make_record(earlier, started_at="2025-01-01T01:00:00Z", ended_at="2025-01-01T01:01:00Z"),
                make_record(PP),
                make_record(TG),
                make_record(failing, failure=make_failure()),
            ]
        )
    return store_url


def said(url: str, *arguments: str, status: int = 0) -> None:
    assert main([*arguments, "--db", url]) == status


def latest(url: str) -> list[tuple[Any, ...]]:
    return answers(url, "SELECT run_uid, test FROM latest ORDER BY test, run_uid")


def test_a_result_that_is_marked_bad_is_in_results_with_the_reason_and_not_in_latest(lab: str, capsys: Any) -> None:
    assert latest(lab) == [("run-1", "pp512"), ("run-1", "tg128")]
    said(lab, "results", "mark", PP.job_uid[:8], "--bad", "fan was off", "--by", "ann")
    assert "marked bad: fan was off" in capsys.readouterr().out
    assert latest(lab) == [("run-0", "pp512"), ("run-1", "tg128")], "what was good before is the latest again"
    (row,) = answers(
        lab, "SELECT mark_reason, marked_by, marked_at FROM results WHERE marked_bad AND run_uid = 'run-1'"
    )
    assert row[:2] == ("fan was off", "ann")
    assert datetime.fromisoformat(row[2]).tzinfo is not None
    said(lab, "results", "run-1")
    assert "bad: fan was off" in capsys.readouterr().out


def test_a_mark_can_be_taken_back_and_what_was_said_stays(lab: str) -> None:
    with Store.open(lab) as store:
        labels.mark(store, [PP.job_uid], "fan was off", "ann")
        (thing,) = labels.mark(store, [PP.job_uid], None, "bob")
    assert latest(lab) == [("run-1", "pp512"), ("run-1", "tg128")]
    assert answers(
        lab, "SELECT kind, said, author FROM labels WHERE uid = '" + thing.uid + "' ORDER BY labelled_at"
    ) == [
        ("bad", "fan was off", "ann"),
        ("good", None, "bob"),
    ]


def test_several_are_marked_or_none(lab: str) -> None:
    with Store.open(lab) as store:
        with pytest.raises(StoreError, match="no result 'zzz'"):
            labels.mark(store, [PP.job_uid, "zzz"], "bad", "ann")
        assert count(lab, "label") == 0
        labels.mark(store, [PP.job_uid, TG.job_uid], "bad", "ann")
    assert latest(lab) == [("run-0", "pp512")]


def test_a_failed_attempt_can_be_marked_by_its_own_uid_too(lab: str) -> None:
    ((uid,),) = answers(lab, "SELECT attempt_uid FROM failures")
    said(lab, "results", "mark", uid, "--bad", "the plug was pulled")
    assert answers(lab, "SELECT mark_reason FROM failures") == [("the plug was pulled",)]


def test_records_that_come_again_do_not_take_a_mark_away(lab: str) -> None:
    with Store.open(lab) as store:
        labels.mark(store, [PP.job_uid], "fan was off", "ann")
        assert store.save_records([make_record(PP)]) == 0
        store.save_fingerprint(make_fingerprint(taken_at="2026-05-01T00:00:00Z"))
    assert ("run-0", "pp512") in latest(lab)


def test_marking_says_what_it_needs(lab: str, capsys: Any) -> None:
    for arguments in (["abc"], ["abc", "--bad", "x", "--good"], ["abc", "--bad", " "], []):
        assert main(["results", "mark", *arguments, "--db", lab]) == 2
    assert "is empty" in capsys.readouterr().err
    assert main(["results", "--help"]) == 0
    assert "results mark" in capsys.readouterr().out


def test_tags_and_notes_are_in_the_views_of_what_they_are_about(lab: str, capsys: Any) -> None:
    said(lab, "tag", "run", "latest", "why=driver 550", "who=ann")
    said(lab, "tag", "host", "box-a", "cooling=fan")
    said(lab, "tag", "result", PP.job_uid[:10], "odd=yes")
    said(lab, "note", "run", "run-1", "first night", "--by", "ann")
    said(lab, "note", "host", "box-a", "stands in the window", "--by", "ann")
    said(lab, "note", "result", PP.job_uid, "the door was open", "--by", "ann")
    columns = "tags, host_tags, result_tags, run_notes, host_notes, notes"
    query = f"SELECT {columns} FROM results WHERE run_uid = 'run-1' AND test = 'pp512'"
    (row,) = [[json.loads(cell) for cell in found] for found in answers(lab, query)]
    assert row[:3] == [{"why": "driver 550", "who": "ann"}, {"cooling": "fan"}, {"odd": "yes"}]
    assert [cell[0]["text"] for cell in row[3:]] == ["first night", "stands in the window", "the door was open"]
    assert all(cell[0]["by"] == "ann" and cell[0]["at"].endswith("Z") for cell in row[3:])
    assert json.loads(answers(lab, "SELECT tags FROM hosts")[0][0]) == {"cooling": "fan"}
    capsys.readouterr()
    said(lab, "note", "host", "box-a")
    assert "stands in the window" in capsys.readouterr().out


def test_a_tag_is_changed_and_removed_and_the_same_twice_is_said_once(lab: str, capsys: Any) -> None:
    said(lab, "tag", "run", "run-1", "a=1", "b=2")
    said(lab, "tag", "run", "run-1", "a=1")
    said(lab, "tag", "run", "run-1", "a=3", "--remove", "b")
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-1:]] == [["a", "3"]]
    assert answers(lab, "SELECT kind, name, said FROM label ORDER BY id") == [
        ("tag", "a", "1"),
        ("tag", "b", "2"),
        ("tag", "a", "3"),
        ("untag", "b", None),
    ]
    said(lab, "note", "run", "run-1", "once", "--by", "ann")
    said(lab, "note", "run", "run-1", "once", "--by", "ann")
    assert count(lab, "label") == 5


def test_tags_of_the_sweep_stay_beside_those_that_people_add(store_url: str) -> None:
    with Store.open(store_url) as store:
        store.save_run(make_run(tags={"why": "baseline"}), [PP])
        assert labels.tag(store, "run", "latest", {"who": "ann"}, [], "ann").tags == {"why": "baseline", "who": "ann"}
        assert store.run().tags == {"why": "baseline", "who": "ann"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["tag", "run", "run-1", "novalue"],
        ["tag", "run", "run-1", "=x"],
        ["tag", "run", "run-1", "a="],
        ["tag", "run", "run-1", f"{'k' * 101}=x"],
        ["tag", "run", "run-1", f"k={'x' * 1001}"],
        ["tag", "run", "run-1", *(f"k{n}=x" for n in range(51))],
        ["tag", "run", "run-1", "--remove", "absent"],
        ["tag", "box", "run-1", "a=b"],
        ["note", "run", "run-1", " "],
        ["note", "run", "run-1", "x" * 4001],
        ["note", "run", "run-1", "x", "--by", ""],
    ],
)
def test_what_is_no_label_is_refused_and_nothing_is_stored(lab: str, arguments: list[str]) -> None:
    assert main([*arguments, "--db", lab]) == 2
    assert count(lab, "label") == 0


def test_a_word_that_names_nothing_or_several_things_is_refused(lab: str) -> None:
    with Store.open(lab) as store:
        store.save_fingerprint(make_fingerprint(host_uid="host-2"))  # also called box-a
        for about, word, words in (
            ("run", "nope", "no run"),
            ("run", "run-", "any of several runs"),
            ("host", "box-a", "any of several hosts"),
            ("result", "a", "any of several results"),
        ):
            with pytest.raises((StoreError, UsageError), match=words):
                labels.labels_of(store, about, word)  # type: ignore[arg-type]
        assert labels.labels_of(store, "host", "host-2").thing.uid == "host-2"


def test_a_jobs_uid_means_the_attempt_that_speaks_for_it(store_url: str) -> None:
    interrupted = make_failure(stage="interrupted", kind="interrupted")
    with Store.open(store_url) as store:
        store.save_run(make_run(), [PP])
        store.save_records([make_record(PP, attempt_uid="cut", failure=interrupted)])
        assert labels.labels_of(store, "result", PP.job_uid).thing.uid == "cut"
        store.save_records([make_record(PP, attempt_uid="whole", number=2)])
        assert labels.labels_of(store, "result", PP.job_uid).thing.uid == "whole"
        assert labels.labels_of(store, "result", "cut").thing.uid == "cut"


def test_words_from_people_cannot_move_the_cursor(lab: str, capsys: Any) -> None:
    said(lab, "results", "mark", PP.job_uid, "--bad", "\x1b[2Jred")
    said(lab, "note", "run", "run-1", "\x1b]0;x\x07")
    said(lab, "results")
    assert "\x1b" not in capsys.readouterr().out


def test_pruning_says_first_what_it_would_drop_and_changes_nothing(lab: str, capsys: Any) -> None:
    said(lab, "db", "prune", "--before", "2025-12-31")
    out = capsys.readouterr().out
    assert "Would drop 3 samples, 1 histograms and 0 logs of 1 attempts" in out
    assert "2025-01-01" in out
    assert count(lab, "sample") == 9


def test_pruning_drops_samples_histograms_and_logs_and_keeps_the_rates(lab: str, capsys: Any) -> None:
    query = "SELECT avg_ts, stddev_ts, latency_p95_ms, n_samples, quality FROM results ORDER BY attempt_uid"
    before = answers(lab, query)
    said(lab, "db", "prune", "--before", "2026-01-31", "--yes")
    assert "Dropped 9 samples, 3 histograms and 1 logs of 4 attempts" in capsys.readouterr().out
    assert count(lab, "sample") == 0
    assert answers(lab, query) == before
    assert answers(lab, "SELECT COUNT(*) FROM attempt WHERE latency_histogram IS NULL AND log_tail IS NULL") == [(4,)]
    assert answers(lab, "SELECT COUNT(*) FROM results WHERE pruned_at IS NULL") == [(0,)]
    said(lab, "db", "prune", "--before", "2026-01-31", "--yes")
    assert "nothing to drop" in capsys.readouterr().out


def test_pruning_goes_on_until_all_is_dropped_and_newer_attempts_keep_all(
    lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.prune.AT_ONCE", 2)
    jobs = [make_job(run_uid="run-9", test=Test(n_prompt=n, n_gen=0)) for n in range(1, 5)]
    with Store.open(lab) as store:
        store.save_run(make_run(run_uid="run-9"), jobs)
        old = [make_record(job, started_at="2025-02-01T00:00:00Z", ended_at="2025-02-01T00:01:00Z") for job in jobs]
        store.save_records(old)
        before = datetime(2025, 12, 1, tzinfo=UTC)
        assert prune(store, before).n_attempts == 5
        assert prunable(store, before).n_attempts == 0
        assert store.save_records(old) == 0
    assert count(lab, "sample") == 6


def test_what_others_measured_is_tagged_and_marked_too(lab: str, tmp_path: Path) -> None:
    table = (
        "| model | size | params | backend | threads | test | t/s |\n"
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |\n"
        "| qwen2 7B Q4_K - Medium | 4.36 GiB | 7.62 B | CPU | 8 | pp512 | 33.11 ± 0.12 |\n\nbuild: 5e1ab07c (6721)\n"
    )
    (tmp_path / "report.md").write_text(table)
    assert main(["import", str(tmp_path / "report.md"), "--db", lab]) == 0
    ((uid,),) = answers(lab, "SELECT attempt_uid FROM all_results WHERE origin = 'imported'")
    said(lab, "tag", "result", uid[:12], "from=forum")
    said(lab, "results", "mark", uid, "--bad", "another model than it says")
    ((tags, bad),) = answers(lab, "SELECT result_tags, marked_bad FROM all_results WHERE origin = 'imported'")
    assert (json.loads(tags), bool(bad)) == ({"from": "forum"}, True)
    assert answers(lab, "SELECT COUNT(*) FROM latest WHERE origin = 'imported'") == [(0,)]
