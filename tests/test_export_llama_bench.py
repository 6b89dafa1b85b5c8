"""Results in llama-bench's own forms: its table to the letter, and a database for llama.cpp's compare script."""

import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.bench_markdown import Columns, Place, place_of, tables
from orchestrator.interchange.bench_output import DEFAULTS, FIELDS, Bench, bench_row, shortened
from orchestrator.labels import mark
from orchestrator.store import Store
from schema.job import Test
from schema.settings import Settings
from tests.factories import make_build, make_fingerprint, make_job, make_record, make_run, make_samples
from tests.stores import new_store

GOLDEN = Path(__file__).parent / "golden" / "llama_bench_tables.json"
SCRIPT = "TOKFLEET_LLAMA_CPP"
KEYS = (
    *("cpu_info", "gpu_info", "backends", "n_gpu_layers", "n_cpu_moe", "tensor_buft_overrides", "model_filename"),
    *("model_type", "n_batch", "n_ubatch", "embeddings", "cpu_mask", "cpu_strict", "poll", "n_threads", "type_k"),
    *("type_v", "load_mode", "no_kv_offload", "split_mode", "main_gpu", "tensor_split", "flash_attn", "n_prompt"),
    *("n_gen", "n_depth", "fit_target", "fit_min_ctx"),
)
"""What compare-llama-bench.py joins two builds by (LLAMA_BENCH_KEY_PROPERTIES), by equality."""

PP, TG, BOTH = Test(n_prompt=512, n_gen=0), Test(n_prompt=0, n_gen=128, n_depth=4096), Test(n_prompt=64, n_gen=32)
OLDER, NEWER = make_build(), make_build(llama_cpp_commit="99999999a", binding="0.4.0")


def two_builds(url: str) -> str:
    """Fill the store: three tests with an older and a newer build, which is a tenth faster, and what is left out."""
    jobs = [make_job(test=test, settings=Settings(flash_attn="on")) for test in (PP, TG, BOTH)]
    again = [make_job(run_uid="run-2", test=test, settings=Settings(flash_attn="on")) for test in (PP, TG, BOTH)]
    odd = make_job(run_uid="run-2", test=Test(n_prompt=0, n_gen=0, n_verify=4))
    with Store.open(url) as store:
        for build in (OLDER, NEWER):
            store.save_fingerprint(make_fingerprint(build=build))
        store.save_run(make_run(), jobs)
        store.save_run(make_run(run_uid="run-2"), [*again, odd])
        store.save_records([make_record(job, build_id=OLDER.build_id) for job in jobs])
        faster = [make_samples(job.test, 450_000_000, 460_000_000, 470_000_000) for job in again]
        store.save_records(
            [
                make_record(job, build_id=NEWER.build_id, samples=samples)
                for job, samples in zip(again, faster, strict=True)
            ]
        )
        store.save_records([make_record(odd, samples=make_samples(odd.test, 10_000_000))])
    return url


def exported(url: str, path: Path, *arguments: str) -> Path:
    assert main(["export", str(path), *arguments, "--db", url]) == 0
    return path


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def table_of(rows: list[Bench]) -> list[str]:
    placed: list[tuple[Place, Bench]] = [(place_of({}, row), row) for row in rows]
    columns = Columns()
    for place, row in placed:
        columns.look(place, row)
    return list(tables(placed, columns))


@pytest.mark.parametrize("case", [0, 1])
def test_the_table_is_to_the_letter_what_llama_bench_printed_of_the_same_rows(case: int) -> None:
    recorded = json.loads(GOLDEN.read_text())[case]
    rows = [{name: kind(row[name]) for name, kind in FIELDS.items()} for row in recorded["rows"]]
    assert table_of(rows) == recorded["table"]


def test_the_fields_are_llama_benchs_own_in_its_order() -> None:
    (row, *_) = json.loads(GOLDEN.read_text())[0]["rows"]
    assert list(FIELDS) == list(row)
    assert all(isinstance(row[name], (int, kind)) for name, kind in FIELDS.items())


def test_a_table_of_ours_is_read_back_as_it_was(store_url: str, tmp_path: Path) -> None:
    text = exported(two_builds(store_url), tmp_path / "report.md").read_bytes()
    found = read_text(text, "report.md")
    assert found.refusals == ()
    assert sorted((row.test.name, round(row.avg_ts), row.build_commit) for row in found.rows) == [
        ("pp512", 1000, "0c1e57098"),
        ("pp512", 1113, "99999999a"),
        ("pp64+tg32", 188, "0c1e57098"),
        ("pp64+tg32", 209, "99999999a"),
        ("tg128 @ d4096", 250, "0c1e57098"),
        ("tg128 @ d4096", 278, "99999999a"),
    ]
    assert {row.settings["flash_attn"] for row in found.rows} == {"on"}


def test_hosts_are_named_above_their_tables_where_there_are_several(store_url: str, tmp_path: Path) -> None:
    two_builds(store_url)
    assert "box" not in exported(store_url, tmp_path / "one.md").read_text()
    with Store.open(store_url) as store:
        store.save_fingerprint(make_fingerprint(host_uid="host-2", hostname="box-b"))
        store.save_run(make_run(run_uid="run-3"), [make_job(run_uid="run-3", host_uid="host-2")])
        store.save_records([make_record(make_job(run_uid="run-3", host_uid="host-2"))])
    text = exported(store_url, tmp_path / "two.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("box")]
    assert titles == [
        f"{name}: AMD Ryzen 9 5900X 12-Core Processor, NVIDIA GeForce RTX 3060" for name in ("box-a", "box-a", "box-b")
    ]
    assert len(read_text(text.encode(), "two.md").rows) == 7


def test_the_database_has_the_table_and_no_null_in_what_the_script_joins_by(store_url: str, tmp_path: Path) -> None:
    path = exported(two_builds(store_url), tmp_path / "llama-bench.sqlite")
    assert rows_of(path, "SELECT name, type FROM sqlite_master") == [("llama_bench", "table")]
    columns = rows_of(path, "SELECT name, type FROM pragma_table_info('llama_bench')")
    kinds = {str: "TEXT", int: "INTEGER", float: "REAL"}
    assert columns[: len(FIELDS)] == [(name, kinds[kind]) for name, kind in FIELDS.items()]
    for name in FIELDS:
        assert rows_of(path, f"SELECT COUNT(*) FROM llama_bench WHERE {name} IS NULL") == [(0,)], name
        assert len({type(value) for (value,) in rows_of(path, f"SELECT {name} FROM llama_bench")}) == 1, name


def test_what_the_script_asks_gives_our_rates_side_by_side(store_url: str, tmp_path: Path) -> None:
    path = exported(two_builds(store_url), tmp_path / "llama-bench.sqlite")
    equal = " AND ".join(f"tb.{name} = tc.{name}" for name in KEYS)
    query = (
        "SELECT tb.n_prompt, tb.n_gen, tb.n_depth, AVG(tb.avg_ts), AVG(tc.avg_ts) "
        f"FROM llama_bench tb JOIN llama_bench tc ON {equal} "
        f"AND tb.build_commit = '0c1e57098' AND tc.build_commit = '99999999a' "
        "GROUP BY tb.n_gen, tb.n_prompt, tb.n_depth"
    )
    found = [(*row[:3], round(row[3], 1), round(row[4], 1)) for row in rows_of(path, query)]
    assert found == [(512, 0, 0, 1000.4, 1113.4), (64, 32, 0, 187.6, 208.8), (0, 128, 4096, 250.1, 278.3)]


def test_bad_and_foreign_rows_are_left_out_and_counted(store_url: str, tmp_path: Path, capsys: Any) -> None:
    two_builds(store_url)
    with Store.open(store_url) as store:
        mark(store, [make_job(settings=Settings(flash_attn="on")).job_uid], "fan was off", "ann")
    for name in ("x.sqlite", "x.md"):
        path = exported(store_url, tmp_path / name)
        told = capsys.readouterr().err
        assert "5 rows of results are in" in told
        assert "1 row marked bad" in told
        assert "1 row of tests that llama-bench does not have" in told
    assert rows_of(tmp_path / "x.sqlite", "SELECT COUNT(*) FROM llama_bench") == [(5,)]
    assert path.read_text().count("tg128 @ d4096") == 2


def test_a_row_with_nothing_but_a_rate_still_has_every_field() -> None:
    row = bench_row({"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 100.0})
    assert row is not None
    assert list(row) == list(FIELDS)
    assert None not in row.values()
    assert {name: row[name] for name in DEFAULTS} == DEFAULTS
    assert (row["backends"], row["avg_ns"], row["stddev_ts"], row["test_time"]) == ("CPU", 5_120_000_000, 0.0, "")


def test_settings_are_as_asked_and_symbols_the_number_that_they_were() -> None:
    asked = {
        "n_threads": "physical",
        "n_gpu_layers": "all",
        "flash_attn": "off",
        "tensor_split": "3/1/0",
        "no_kv_offload": "on",
        "repack": "off",
        "devices": "CUDA0/CUDA1",
        "n_batch": 2048,
    }
    stored = {f"asked_{name}": value for name, value in asked.items()} | {"n_threads": 8, "n_batch": 512}
    row = bench_row({"n_prompt": 1, "n_gen": 0, "n_depth": 0, "avg_ts": 1.0, "backends": "CUDA,CPU", **stored})
    assert row is not None
    told = {name: row[name] for name in asked}
    assert told == {
        "n_threads": 8,
        "n_gpu_layers": -1,
        "flash_attn": 0,
        "tensor_split": "3.00/1.00",
        "no_kv_offload": 1,
        "repack": 0,
        "devices": "CUDA0/CUDA1",
        "n_batch": 2048,
    }
    assert row["backends"] == "CUDA"


def test_what_others_measured_goes_out_as_it_came_in(store_url: str, tmp_path: Path) -> None:
    recorded = [row for case in json.loads(GOLDEN.read_text()) for row in case["rows"]]
    (tmp_path / "theirs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in recorded))
    assert main(["import", str(tmp_path / "theirs.jsonl"), "--db", store_url]) == 0
    path = exported(store_url, tmp_path / "ours.sqlite", "--view", "all_results")
    names = [name for name in FIELDS if name != "build_number"]  # the views have no column for it
    found = rows_of(path, f"SELECT {', '.join(names)} FROM llama_bench")
    wanted = [tuple(FIELDS[name](row[name]) for name in names) for row in recorded]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("commits", "names"),
    [
        (["0c1e57098", "99999999a"], {"0c1e57098": "0c1e57098", "99999999a": "99999999a", "unknown": "unknown--"}),
        (["0c1e57098", "9999999"], {"0c1e57098": "0c1e570", "9999999": "9999999", "unknown": "unknown"}),
        (["0c1e57098", "0c1e570"], {"0c1e57098": "0c1e570", "0c1e570": "0c1e570", "unknown": "unknown"}),
        (["0c1e57098", "0c1e57011", "9999999"], {}),
        (["unknown"], {}),
        ([], {}),
    ],
)
def test_builds_are_called_by_names_of_one_length_unless_two_would_become_one(
    commits: list[str], names: dict[str, str]
) -> None:
    assert shortened(commits) == names


def compare_script() -> Path | None:
    """Return llama.cpp's compare script in the source tree that the variable names, None where there is none."""
    path = Path(os.environ.get(SCRIPT, "")) / "scripts" / "compare-llama-bench.py"
    return path if os.environ.get(SCRIPT) and path.is_file() else None


def needed_by_the_script(directory: Path) -> str:
    """Return a directory with what stands in for the script's two packages, where one of them is not installed."""
    if not importlib.util.find_spec("git"):
        (directory / "git.py").write_text(
            "class InvalidGitRepositoryError(Exception): pass\n"
            "class Commit: pass\n"
            "class Repo:\n"
            "    def __init__(self, *_, **__): raise InvalidGitRepositoryError\n"
        )
    if not importlib.util.find_spec("tabulate"):
        (directory / "tabulate.py").write_text(
            "def tabulate(table, headers, floatfmt, tablefmt):\n"
            "    cells = [[format(c, floatfmt) if isinstance(c, float) else str(c) for c in row] for row in table]\n"
            "    return '\\n'.join('| ' + ' | '.join(row) + ' |' for row in [headers, *cells])\n"
        )
    return str(directory)


@pytest.mark.skipif(compare_script() is None, reason=f"{SCRIPT} names no source tree of llama.cpp")
@pytest.mark.parametrize("arguments", [[], ["-s", "model_type,n_threads,flash_attn"]])
def test_llama_cpps_compare_script_takes_the_database_as_it_is(tmp_path: Path, arguments: list[str]) -> None:
    url = two_builds(f"sqlite:///{new_store(tmp_path)}")
    path = exported(url, tmp_path / "llama-bench.sqlite")
    before = path.read_bytes()
    (tmp_path / "packages").mkdir()
    done = subprocess.run(
        [sys.executable, str(compare_script()), "-i", str(path), "-b", "0c1e57098", "-c", "99999999a", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": needed_by_the_script(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in done.stdout.splitlines()]
    rates = {row[-4]: [float(cell) for cell in row[-3:]] for row in cells if re.match(r"(pp|tg)\d", row[-4:][0])}
    assert rates == {
        "pp512": [pytest.approx(1000.4, abs=0.1), pytest.approx(1113.4, abs=0.1), 1.11],
        "pp64+tg32": [pytest.approx(187.6, abs=0.1), pytest.approx(208.8, abs=0.1), 1.11],
        "tg128@d4096": [pytest.approx(250.1, abs=0.1), pytest.approx(278.3, abs=0.1), 1.11],
    }
    assert path.read_bytes() == before
