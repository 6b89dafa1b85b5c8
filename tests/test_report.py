from typing import Any

import pytest

from orchestrator.report import (
    duration,
    failures_table,
    feel,
    rate_text,
    results_table,
    run_summary,
    stages_table,
    varying,
)


def make_row(**changes: Any) -> dict[str, Any]:
    row = {
        "run_uid": "run-1",
        "run_name": "q4",
        "test_time": "2026-01-02T03:04:05.000000Z",
        "host_uid": "h1",
        "host": "boxa",
        "model": "tiny-Q4_K_M.gguf",
        "kind": "tg",
        "test": "tg128",
        "n_prompt": 0,
        "n_gen": 128,
        "avg_ts": 92.634,
        "stddev_ts": 0.312,
        "load_seconds": 0.412,
        "n_threads": 2,
        "quality": None,
    }
    return row | changes


@pytest.mark.parametrize(
    ("rate", "word"),
    [
        (0.0, "stutters"),
        (9.99, "stutters"),
        (10.0, "usable"),
        (29.99, "usable"),
        (30.0, "smooth"),
        (60.0, "smooth"),
        (60.01, "silky"),
        (100.0, "silky"),
        (100.01, "flying"),
    ],
)
def test_feel_has_its_boundaries_where_it_says(rate: float, word: str) -> None:
    assert feel(rate) == word


@pytest.mark.parametrize(
    ("rate", "spread", "text"),
    [
        (9651.4, 120.6, "9651 ± 121"),
        (965.14, 12.34, "965.1 ± 12.3"),
        (92.634, 0.312, "92.63 ± 0.31"),
        (92.634, 0.0001, "92.63 ± <0.01"),
        (92.634, 0.0, "92.63 ± 0.00"),
        (92.634, None, "92.63 ± ?"),
        (None, None, "-"),
    ],
)
def test_a_rate_is_shown_with_its_spread(rate: float | None, spread: float | None, text: str) -> None:
    assert rate_text(rate, spread, True) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.41234, "0.41 s"),
        (45.2, "45 s"),
        (59.9, "60 s"),
        (240.0, "4 min"),
        (4800.0, "1 h 20 min"),
        (7170.0, "2 h 0 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_summary_shows_rates_feeling_load_time_place_and_what_to_try_next() -> None:
    rows = [make_row(), make_row(kind="pp", test="pp512", avg_ts=965.1, stddev_ts=12.3)]
    assert run_summary(rows, [], "/data/tokfleet.sqlite") == [
        "Measured 2 tests.",
        "",
        "model             test   prefill t/s   decode t/s    feels  load",
        "----------------  -----  ------------  ------------  -----  ------",
        "tiny-Q4_K_M.gguf  tg128  -             92.63 ± 0.31  silky  0.41 s",
        "tiny-Q4_K_M.gguf  pp512  965.1 ± 12.3  -             -      0.41 s",
        "",
        "The rows are in /data/tokfleet.sqlite, run run-1.",
        "Next:",
        "  tokfleet results run-1",
        "  tokfleet results run-1 --format csv > rates.csv",
        '  tokfleet sql "select host, model, test, avg_ts from latest"',
    ]


def test_summary_names_what_failed_and_points_there_first() -> None:
    failure = make_row(test="pp8192", stage="load", message="no memory\nfor it", avg_ts=None)
    lines = run_summary([make_row()], [failure], "x.sqlite")
    assert lines[0] == "Measured 1 test, 1 failed."
    assert "failed: tiny-Q4_K_M.gguf pp8192: load: no memory" in lines
    assert "  tokfleet results run-1 --failed" in lines


def test_summary_of_nothing_at_all_says_so() -> None:
    assert run_summary([], [], "x.sqlite") == ["Measured 0 tests.", "", "", "The rows are in x.sqlite."]


def test_summary_shows_one_repetition_as_an_unknown_spread() -> None:
    text = "\n".join(run_summary([make_row(stddev_ts=None)], [], "x.sqlite"))
    assert "92.63 ± ?" in text
    assert "± 0" not in text
    assert "one repetition" in text


def test_summary_shows_hosts_settings_and_quality_only_where_they_differ() -> None:
    same = "\n".join(run_summary([make_row(), make_row()], [], "x.sqlite"))
    assert "boxa" not in same
    assert "n_threads" not in same
    other = make_row(host_uid="h2", host="boxb", n_threads=8, asked_n_threads="8", quality="noisy")
    differing = "\n".join(run_summary([make_row(), other], [], "x.sqlite"))
    assert {"boxb", "n_threads", "noisy"} <= set(differing.split())


def test_settings_that_cannot_be_read_back_are_told_apart_by_what_was_asked() -> None:
    rows = [make_row(flash_attn=None, asked_flash_attn="on"), make_row(flash_attn=None, asked_flash_attn="off")]
    assert varying(rows) == ["flash_attn"]
    assert "off" in "\n".join(results_table(rows))


def test_stages_of_a_combined_test_show_load_prefill_and_decode() -> None:
    row = make_row(kind="pg", test="pp8+tg60", n_prompt=8, n_gen=60, avg_ts=68.1, prompt_ts=800.0, gen_ts=60.5)
    assert stages_table(row) == [
        "stage    tokens  time    rate",
        "-------  ------  ------  ---------",
        "load          -  0.41 s  -",
        "prefill       8  0.01 s  800.0 t/s",
        "decode       60  0.99 s  60.50 t/s",
    ]


def test_a_combined_test_fills_both_columns_of_the_summary() -> None:
    row = make_row(kind="pg", test="pp8+tg60", n_prompt=8, n_gen=60, avg_ts=68.1, prompt_ts=800.0, gen_ts=60.5)
    assert "800.0        60.50       silky" in "\n".join(run_summary([row], [], "x.sqlite"))


def test_decodes_show_what_share_of_the_ceiling_they_reached_and_how_to_ask_why() -> None:
    rows = [make_row(mbu=0.553, job_uid="0123456789abcdef"), make_row(kind="pp", test="pp512", job_uid="f" * 32)]
    assert results_table(rows) == [
        "when              run  host  model             test   t/s           of ceiling  quality  id",
        "----------------  ---  ----  ----------------  -----  ------------  ----------  -------  --------",
        "2026-01-02 03:04  q4   boxa  tiny-Q4_K_M.gguf  tg128  92.63 ± 0.31  55%         -        01234567",
        "2026-01-02 03:04  q4   boxa  tiny-Q4_K_M.gguf  pp512  92.63 ± 0.31  -           -        ffffffff",
    ]
    assert "of ceiling" in "\n".join(run_summary([make_row(mbu=0.5)], [], "x.sqlite"))


def test_a_share_above_one_is_shown_as_it_is_with_where_to_ask() -> None:
    lines = results_table([make_row(mbu=1.31)])
    assert "131%" in lines[2]
    assert "`tokfleet results --explain ID` says what may be" in lines[-1]
    assert len(results_table([make_row(mbu=1.04)])) == 3


def test_results_and_failures_are_tables_of_one_line_each() -> None:
    assert results_table([make_row(quality="clean")])[2] == (
        "2026-01-02 03:04  q4   boxa  tiny-Q4_K_M.gguf  tg128  92.63 ± 0.31  clean"
    )
    failed = failures_table([make_row(stage="load", message="no\nmemory")])
    assert failed[2] == "2026-01-02 03:04  q4   boxa  tiny-Q4_K_M.gguf  tg128  load   no\\nmemory"


def test_rounds_are_numbered_where_there_are_several() -> None:
    rows = [make_row(replica=0, across="builds"), make_row(replica=1, across="builds")]
    for lines in (run_summary(rows, [], "x.sqlite"), results_table(rows)):
        heading = next(line for line in lines if "round" in line)
        at = heading.index("round")
        shown = [line[at] for line in lines if "tiny-Q4_K_M.gguf" in line]
        assert shown == ["1", "2"]
    assert "round" not in "\n".join(results_table([make_row(replica=0, across=None)]))
