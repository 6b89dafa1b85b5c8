"""Imported files in the store: marked, once, whole or not at all; the same on both databases."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator import imports
from orchestrator.imports import save_file
from orchestrator.interchange import import_rows
from orchestrator.interchange.bench_folder import read_bytes
from orchestrator.interchange.doubles import Sorted
from orchestrator.interchange.import_rows import SourceFile, storable
from orchestrator.store import Store
from schema.errors import UsageError
from tests.factories import make_fingerprint, make_record
from tests.import_files import BATCHED, BUILD, HEAD, PP, TG, as_json, csv, jsonl, md, sql, table_row
from tests.stores import answers, count, open_store

FORMS = {"json": as_json(), "jsonl": jsonl(), "csv": csv(), "sql": sql(), "md": md()}


def take(
    url: str, text: str | bytes, name: str = "/srv/run", host: str | None = None, salvage: bool = False, **options: bool
) -> Sorted:
    """Take the text of a file into the store."""
    raw = text.encode() if isinstance(text, str) else text
    content = read_bytes(raw, name, salvage=salvage)
    file = SourceFile(name=name, sha256=content.sha256, n_bytes=content.n_bytes, found=content.found)
    with Store.open(url) as store:
        return store.change(lambda connection: save_file(connection, file, host, "0", **options))


def told(one: Sorted) -> tuple[int, int, int]:
    """Return how many rows were new, known, likely the same as others."""
    return one.n_new, one.n_known, one.n_likely


def results(url: str, columns: str = "test, avg_ts") -> list[tuple[Any, ...]]:
    return answers(url, f"SELECT {columns} FROM all_results ORDER BY test, source_file, source_line")


BOTH = [("pp512", 1817.260003), ("tg128", 61.302)]


def test_an_imported_row_is_marked_and_says_what_its_file_says_and_no_more(store_url: str) -> None:
    assert told(take(store_url, jsonl(), "/srv/runs/a.jsonl")) == (2, 0, 0)
    with Store.open(store_url) as store:
        tokens, prompt = store.results()
    wanted = {
        "origin": "imported",
        "source_file": "/srv/runs/a.jsonl",
        "source_line": 1,
        "test": "pp512",
        "kind": "pp",
        "n_depth": 0,
        "n_parallel": 1,
        "model": "demo-4B.gguf",
        "model_size": 2491000000,
        "cpu_info": "AMD Ryzen 9 5900X",
        "backends": "CUDA",
        "build_commit": "5e1ab07c",
        "asked_n_threads": "12",
        "asked_n_batch": 2048,
        "asked_flash_attn": "off",
        "test_time": "2025-10-11T09:14:02.000000Z",
        "test_epoch": 1760174042,
        "avg_ts": 1817.260003,
        "stddev_ts": 9.376994,
        "avg_ns": 281748877,
        "n_samples": 2,
        "method": "llama-bench",
        "seq_ts": 1817.260003,
        "prompt_ts": 1817.260003,
        "marked_bad": 0,
    }
    assert {name: prompt[name] for name in wanted} == wanted
    assert tokens["gen_ts"] == 61.302
    unknown = ("host", "quality", "hardware_id", "environment_id", "model_sha256", "run_uid", "n_threads", "asked_poll")
    assert {name: prompt[name] for name in unknown} == dict.fromkeys(unknown)
    ((raw, samples),) = answers(store_url, "SELECT raw, samples_ns FROM imported WHERE source_line = 2")
    assert raw == jsonl().splitlines()[1]
    assert samples == "[2085068232, 2090991646]"


def test_what_is_to_be_compared_has_no_imported_row(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_records([make_record()])
    take(store_url, jsonl(), host="box-a")
    assert [row[0] for row in answers(store_url, "SELECT origin FROM all_results ORDER BY origin")] == [
        *["imported"] * 2,
        "measured",
    ]
    assert answers(store_url, "SELECT origin, source_file FROM latest") == [("measured", None)]


@pytest.mark.parametrize("order", [("json", "jsonl", "csv", "sql", "md"), ("md", "csv", "jsonl", "sql", "json")])
def test_one_run_in_every_form_is_its_two_results_in_whatever_order_they_come(
    store_url: str, order: tuple[str, ...]
) -> None:
    counts = {form: told(take(store_url, FORMS[form], f"/srv/run.{form}")) for form in order}
    assert results(store_url) == BOTH
    assert sum(new for new, _, _ in counts.values()) == 2
    if order[0] == "json":
        assert counts["md"] == (0, 0, 2)
        assert [counts[form] for form in ("jsonl", "csv", "sql")] == [(0, 2, 0)] * 3
    assert count(store_url, "imported") == 4
    doubles = answers(store_url, "SELECT format, avg_ts FROM imported WHERE likely_same_as IS NOT NULL ORDER BY 2")
    assert doubles == [("md", 61.3), ("md", 1817.26)]
    for form in order:
        assert told(take(store_url, FORMS[form])) == (0, 2, 0)
    assert results(store_url) == BOTH


def test_a_form_that_lost_columns_is_the_same_result_by_its_time_to_the_nanosecond(store_url: str) -> None:
    lost = [{key: value for key, value in row.items() if key not in ("cpu_info", "n_ubatch")} for row in (PP, TG)]
    assert told(take(store_url, jsonl(*lost))) == (2, 0, 0)
    assert told(take(store_url, sql())) == (0, 0, 2)
    assert results(store_url, "test, cpu_info") == [("pp512", "AMD Ryzen 9 5900X"), ("tg128", "AMD Ryzen 9 5900X")]
    again = PP | {"test_time": "2025-10-11T09:15:02Z"}
    assert told(take(store_url, jsonl(again))) == (1, 0, 0)


def test_a_file_that_grew_adds_its_new_rows_only(store_url: str) -> None:
    assert told(take(store_url, jsonl(PP))) == (1, 0, 0)
    assert told(take(store_url, jsonl(PP, TG))) == (1, 1, 0)
    assert told(take(store_url, jsonl(PP, TG), "/elsewhere/copy")) == (0, 2, 0)
    assert results(store_url) == BOTH


def test_a_table_that_grew_to_its_end_is_no_second_result(store_url: str) -> None:
    assert told(take(store_url, HEAD + table_row())) == (1, 0, 0)
    assert results(store_url, "test, build_commit") == [("pp512", None)]
    assert told(take(store_url, md())) == (1, 0, 1)
    assert results(store_url, "test, build_commit") == [("pp512", "5e1ab07c"), ("tg128", "5e1ab07c")]
    assert told(take(store_url, HEAD + table_row())) == (0, 1, 0)


def test_two_equal_lines_of_a_table_are_two_measurements_and_each_has_its_own_twin(store_url: str) -> None:
    twice = HEAD + table_row() + table_row() + BUILD
    assert told(take(store_url, twice)) == (2, 0, 0)
    assert told(take(store_url, HEAD + table_row() * 3 + BUILD)) == (1, 2, 0)
    later = PP | {"test_time": "2025-10-11T09:20:02Z", "avg_ns": 281748878}
    assert told(take(store_url, jsonl(PP, later))) == (0, 0, 2)
    assert len(results(store_url)) == 3
    assert told(take(store_url, twice, "/srv/again")) == (0, 2, 0)


def test_rows_may_be_said_to_be_distinct(store_url: str) -> None:
    take(store_url, jsonl())
    assert told(take(store_url, md(), distinct=True)) == (2, 0, 0)
    assert len(results(store_url)) == 4
    assert told(take(store_url, md())) == (0, 2, 0)


def test_rows_that_were_doubles_are_results_once_they_are_said_to_be_distinct(store_url: str) -> None:
    take(store_url, jsonl())
    assert told(take(store_url, md())) == (0, 0, 2)
    assert told(take(store_url, md(), distinct=True)) == (2, 0, 0)
    assert len(results(store_url)) == 4


def test_a_table_and_its_json_in_one_report_are_one_result_each(store_url: str) -> None:
    assert told(take(store_url, "# Run\n" + md() + "\n" + jsonl())) == (2, 0, 2)
    assert results(store_url) == BOTH


def test_of_a_damaged_file_nothing_is_stored_unless_it_is_salvaged(store_url: str) -> None:
    cut = jsonl()[:-30]
    assert told(take(store_url, cut)) == (0, 0, 0)
    assert (count(store_url, "imported"), count(store_url, "import_file")) == (0, 0)
    assert told(take(store_url, cut, salvage=True)) == (1, 0, 0)
    ((refused, refusals),) = answers(store_url, "SELECT n_refused, refusals FROM import_file")
    assert refused == 1
    assert '"line": 2' in refusals
    assert told(take(store_url, jsonl())) == (1, 1, 0)


def test_a_file_is_stored_whole_or_not_at_all(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = import_rows.imported_row

    def fails(row: Any, *rest: Any) -> dict[str, Any]:
        values = made(row, *rest)
        return values | {"avg_ts": -1.0} if row.test.kind == "tg" else values

    monkeypatch.setattr(imports, "imported_row", fails)
    with pytest.raises(Exception, match="avg_ts_is_positive"):
        take(store_url, jsonl())
    assert (count(store_url, "imported"), count(store_url, "import_file")) == (0, 0)


def test_a_host_is_known_by_name_or_made_without_a_fingerprint(store_url: str) -> None:
    with open_store(store_url):
        pass
    take(store_url, jsonl(PP), host="box-a")
    take(store_url, jsonl(TG), host="läb-7 'x'")
    assert results(store_url, "test, host, hardware_id") == [("pp512", "box-a", None), ("tg128", "läb-7 'x'", None)]
    hosts = answers(store_url, "SELECT host, uid_source, cpu_info IS NULL FROM hosts ORDER BY host")
    assert hosts == [("box-a", hosts[0][1], 0), ("läb-7 'x'", "imported", 1)]
    take(store_url, jsonl(TG | {"test_time": "2025-10-11T10:00:00Z"}), host="läb-7 'x'")
    assert count(store_url, "hosts") == 2


def test_a_host_that_was_named_later_is_given_to_the_rows_that_have_none(store_url: str) -> None:
    take(store_url, jsonl())
    assert told(take(store_url, jsonl(), host="lab-7")) == (0, 2, 0)
    assert results(store_url, "host") == [("lab-7",)] * 2
    other = take(store_url, jsonl(), host="lab-8")
    assert (told(other), other.elsewhere) == ((0, 2, 0), 2)
    assert results(store_url, "host") == [("lab-7",)] * 2


def test_equal_tables_of_two_hosts_are_two_results(store_url: str) -> None:
    take(store_url, md(), host="lab-7")
    assert told(take(store_url, md(), host="lab-8")) == (2, 0, 0)
    assert told(take(store_url, md(), host="lab-8")) == (0, 2, 0)
    assert told(take(store_url, md(), host="lab-7")) == (0, 2, 0)
    assert told(take(store_url, md())) == (0, 2, 0)
    pairs = answers(store_url, "SELECT host, test FROM all_results ORDER BY host, test")
    assert pairs == [("lab-7", "pp512"), ("lab-7", "tg128"), ("lab-8", "pp512"), ("lab-8", "tg128")]


def test_a_name_of_several_hosts_is_refused_with_their_uids(store_url: str) -> None:
    with Store.open(store_url) as store:
        for uid in ("host-1", "host-2"):
            store.save_fingerprint(make_fingerprint(host_uid=uid, hostname="twin"))
    with pytest.raises(UsageError, match="host-1, host-2"):
        take(store_url, jsonl(), host="twin")
    assert count(store_url, "imported") == 0
    take(store_url, jsonl(), host="host-2")
    assert answers(store_url, "SELECT DISTINCT host_uid FROM all_results") == [("host-2",)]


@pytest.mark.parametrize("name", ["", " ", "x" * 256, "a\nb", "a\x1b[31mb", "\udcff"])
def test_what_is_no_name_of_a_host_is_refused(store_url: str, name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a host"):
        take(store_url, jsonl(), host=name)
    assert count(store_url, "hosts") == 0


def test_what_was_measured_here_and_went_out_is_known_when_it_comes_back(store_url: str) -> None:
    record = make_record()
    with open_store(store_url) as store:
        store.save_records([record])
        (row,) = store.results()
    started = datetime.fromisoformat(record.started_at).astimezone(UTC).replace(microsecond=0)
    given = PP | {"test_time": f"{started:%Y-%m-%dT%H:%M:%SZ}", "avg_ns": row["avg_ns"], "avg_ts": row["avg_ts"]}
    assert told(take(store_url, jsonl(given))) == (0, 1, 0)
    assert told(take(store_url, jsonl(given | {"avg_ns": row["avg_ns"] + 1}))) == (1, 0, 0)


def test_both_phases_of_batched_bench_are_rows_with_their_sequences(store_url: str) -> None:
    shared = BATCHED.replace('"is_pp_shared": 0', '"is_pp_shared": 1').replace("605.770935", "700.5")
    assert told(take(store_url, BATCHED + shared)) == (4, 0, 0)
    assert results(store_url, "test, n_parallel, seq_ts, n_depth, method, model, stddev_ts") == [
        ("pp128", 1, 700.5, 0, "batched-bench", None, None),
        ("pp128 x2", 2, 605.770935 / 2, 0, "batched-bench", None, None),
        ("tg64 @ d128 x2", 2, 23.050371 / 2, 128, "batched-bench", None, None),
        ("tg64 @ d128 x2", 2, 23.050371 / 2, 128, "batched-bench", None, None),
    ]
    extras = [
        json.loads(row[0]) for row in answers(store_url, "SELECT extras FROM imported ORDER BY source_line, test")
    ]
    assert [row["is_pp_shared"] for row in extras] == ["0", "0", "1", "1"]


def test_an_unknown_spread_is_null_and_doubts_are_told(store_url: str) -> None:
    take(store_url, HEAD + table_row("tg128", "42.74 ± 0.00") + table_row("pp64", "36.25 ± 17.61") + BUILD)
    rows = results(store_url, "test, stddev_ts, doubts")
    assert [row[:2] for row in rows] == [("pp64", 17.61), ("tg128", None)]
    assert "noisy" in rows[0][2]
    assert "not known" in rows[1][2]


def test_names_that_no_database_takes_are_spelt_out(store_url: str) -> None:
    assert storable("a\0b\udcffc") == "a\\x00b\\udcffc"
    take(store_url, jsonl(), "/srv/\udcff\0.json")
    assert {row[0] for row in results(store_url, "source_file")} == {"/srv/\\udcff\\x00.json"}


def test_results_without_a_time_are_listed_after_those_with_one(store_url: str) -> None:
    take(store_url, md(), "/srv/a.md", distinct=True)
    take(store_url, jsonl(), "/srv/b.jsonl", distinct=True)
    with Store.open(store_url) as store:
        assert [row["source_file"][-5:] for row in store.results()] == ["jsonl", "jsonl", "/a.md", "/a.md"]
        assert [row["source_file"][-5:] for row in store.results(limit=3)] == ["jsonl", "jsonl", "/a.md"]
        assert len(store.results(limit=1)) == 1


def test_many_rows_are_taken_in_and_known_again(store_url: str) -> None:
    rows = [PP | {"test_time": f"2025-10-{n // 1000 + 1:02d}T{n // 60 % 24:02d}:{n % 60:02d}:00Z"} for n in range(1500)]
    many = [row | {"avg_ns": row["avg_ns"] + n} for n, row in enumerate(rows)]
    assert told(take(store_url, jsonl(*many))) == (1500, 0, 0)
    assert told(take(store_url, jsonl(*many, TG))) == (1, 1500, 0)
    equal = HEAD + table_row("pp99", "9.09 ± 0.01") * 1500 + BUILD
    assert told(take(store_url, equal)) == (1500, 0, 0)
    assert told(take(store_url, equal)) == (0, 1500, 0)


def test_a_fuller_form_of_a_known_row_gives_it_what_it_lacks_and_adds_none(store_url: str) -> None:
    damaged = {key: value for key, value in PP.items() if key != "model_filename"}
    take(store_url, csv(damaged), "/srv/a.csv")
    assert results(store_url, "model, model_filename, n_samples, median_ts IS NULL") == [
        (PP["model_type"], None, None, 1)
    ]
    assert told(take(store_url, jsonl(PP), "/srv/b.jsonl")) == (0, 1, 0)
    filled = results(store_url, "model, model_filename, n_samples, source_file, median_ts IS NULL")
    assert filled == [("demo-4B.gguf", "/srv/demo-4B.gguf", 2, "/srv/a.csv", 0)]
