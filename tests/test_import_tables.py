"""llama-bench's tables, wherever they stand, and tables that are none of its own."""

import pytest

from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.found import Found

HEAD = "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | ---: | ---: |\n"
BUILD = "\nbuild: 5e1ab07c (6721)\n"


def line(test: str = "pp512", rate: str = "406.67 ± 4.16", ngl: str = "99", size: str = "2.32 GiB") -> str:
    return f"| qwen3 4B Q4_K - Medium | {size} | 4.02 B | CUDA | {ngl} | {test} | {rate} |\n"


def read(text: str, salvage: bool = False) -> Found:
    return read_text(text.encode(), "report.md", salvage=salvage)


def shown(text: str) -> list[tuple[str, float, float | None]]:
    return [(row.test.name, row.avg_ts, row.stddev_ts) for row in read(text).rows]


def test_a_table_gives_test_rate_spread_model_and_build_and_nothing_that_it_does_not_print() -> None:
    (row,) = read(HEAD + line("tg128 @ d4096", "61.30 ± 0.12") + BUILD).rows
    assert (row.test.name, row.avg_ts, row.stddev_ts, row.line) == ("tg128 @ d4096", 61.3, 0.12, 3)
    assert (row.model.model_type, row.backends) == ("qwen3 4B Q4_K - Medium", "CUDA")
    assert (row.build_commit, row.build_number) == ("5e1ab07c", 6721)
    assert row.settings == {"n_gpu_layers": 99}
    assert (row.model.model_size, row.model.printed_size, row.tested_at, row.repetitions) == (
        None,
        "2.32 GiB",
        None,
        None,
    )
    assert row.raw == line("tg128 @ d4096", "61.30 ± 0.12").rstrip()


def test_tests_of_every_age_are_read() -> None:
    names = ("pp 512", "tg 128", "pp512+tg128", "pp512 @ d4096", "pp4096+tg128 @ d512")
    assert [name for name, _, _ in shown(HEAD + "".join(map(line, names)) + BUILD)] == [
        "pp512",
        "tg128",
        "pp512+tg128",
        "pp512 @ d4096",
        "pp4096+tg128 @ d512",
    ]


def test_prefill_and_decode_in_one_are_of_neither_kind() -> None:
    assert [row.test.kind for row in read(HEAD + line("pp4096+tg128") + line("tg8") + BUILD).rows] == ["pg", "tg"]


@pytest.mark.parametrize("mark", ["±", "Â±", "┬▒", "+/-", "+-", "�", "��"])
def test_the_sign_between_mean_and_spread_survives_what_terminals_make_of_it(mark: str) -> None:
    assert shown(HEAD + line(rate=f"406.67 {mark} 4.16") + BUILD) == [("pp512", 406.67, 4.16)]


def test_a_unit_emphasis_and_separated_thousands_are_understood() -> None:
    text = HEAD + line(rate="**1,817.26 ± 9.38 t/s**") + line("tg128", "`61.30 ± 0.12`") + BUILD
    assert shown(text) == [("pp512", 1817.26, 9.38), ("tg128", 61.3, 0.12)]


@pytest.mark.parametrize(
    "rate",
    [
        "524,39",
        "524,39 ± 1,20",
        "1.817,26 ± 9,38",
        "1.817 ± 9",
        "731",
        "61.30",
        "61.3 ± 0.1",
        "61.30 ± ",
        "-5.00 ± 1.00",
    ],
)
def test_a_rate_that_llama_bench_would_not_write_is_refused(rate: str) -> None:
    found = read(HEAD + line() + line("tg128", rate) + BUILD)
    assert (found.rows, found.held, found.n_refused) == ((), 1, 1)
    assert found.refusals[0].line == 4


@pytest.mark.parametrize("rate", ["inf ± nan", "-nan ± 0.00", "nan(ind) ± 0.00", "0.00 ± 0.00"])
def test_a_rate_that_is_none_is_no_row_and_the_others_stay(rate: str) -> None:
    found = read(HEAD + line("pp512", rate) + line("tg128", "61.30 ± 0.12") + BUILD)
    assert [row.test.name for row in found.rows] == ["tg128"]
    assert [(refusal.line, refusal.severity) for refusal in found.refusals] == [(3, "void")]


def test_without_its_end_a_table_is_kept_and_called_incomplete() -> None:
    found = read("ggml_cuda_init: found 1 CUDA devices:\n" + HEAD + line() + "CUDA error\nAborted (core dumped)\n")
    assert (len(found.rows), found.rows[0].build_commit, found.incomplete) == (1, None, True)
    assert not read(HEAD + line() + BUILD).incomplete


def test_each_table_has_its_own_columns_and_build() -> None:
    wide = HEAD.replace("ngl |", "ngl | fa |").replace("--: |", "--: | --: |", 1)
    text = wide + line(ngl="99 | 1") + "build: aaaa (1)\n# next\n" + HEAD + line("tg128") + "\n\nbuild: bbbb (2)\n"
    assert [(row.build_commit, row.settings.get("flash_attn")) for row in read(text).rows] == [
        ("aaaa", "on"),
        ("bbbb", None),
    ]


def test_a_build_printed_before_the_table_is_that_tables_and_of_no_later_one() -> None:
    text = "build: aaaa (1)\n" + HEAD + line() + "\nsome words\n\n" + HEAD + line("tg128")
    assert [row.build_commit for row in read(text).rows] == ["aaaa", None]


def test_a_build_after_other_words_is_not_that_of_the_table_above() -> None:
    assert read(HEAD + line() + "That was Monday.\nbuild: bbbb (2)\n").rows[0].build_commit is None


def test_tables_may_be_quoted_indented_and_have_what_else_was_printed_between_their_rows() -> None:
    text = (
        HEAD
        + "ggml_vulkan: 0 = GPU (radv) | uma: 0 | fp16: 0\n"
        + line()
        + "llama-bench: benchmark 2/2\n"
        + line("tg8")
    )
    for before in ("> ", "    ", "\x1b[32m"):
        assert len(read("".join(before + part + "\n" for part in (text + BUILD).splitlines())).rows) == 2


def test_bars_inside_the_overrides_do_not_shift_the_rate() -> None:
    head = HEAD.replace("ngl |", "ngl | ot |").replace("--: |", "--: | --- |", 1)
    pattern = r"blk\.(8|9|10)\.ffn_(up|down)_exps.*=CPU"
    (row,) = read(head + line(ngl=f"99 | {pattern}") + BUILD).rows
    assert (row.settings["tensor_buft_overrides"], row.avg_ts) == (pattern, 406.67)
    shifted = read(head + line(ngl=f"99 | 12 | f16 | {pattern}") + BUILD)
    assert (shifted.rows, shifted.n_refused) == ((), 1)  # more cells than columns are not all of the pattern
    wrapped = line(ngl=r"99 | blk\.0\.(a|b)=CPU," + "\n" + r"blk\.1\.(a|b)=CPU")
    (row,) = read(head + wrapped + BUILD).rows
    assert (row.avg_ts, row.line, row.raw) == (406.67, 3, wrapped.rstrip())
    assert "blk\\.1" in str(row.settings["tensor_buft_overrides"])


def test_a_row_wrapped_elsewhere_than_in_its_overrides_is_not_joined() -> None:
    head = HEAD.replace("ngl |", "ngl | ot |").replace("--: |", "--: | --- |", 1)
    row = line(ngl="99 | (a|b)=CPU")
    for place in ("Medium", "CUDA", "pp512", "4.16"):
        found = read(head + row.replace(place, place[:2] + "\n" + place[2:]) + line(ngl="99 | none") + BUILD)
        assert (found.rows, found.refusals[0].line) == ((), 3)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("| qwen3 | 2.32 GiB | 4.02 B | CUDA | pp512 | 406.67 ± 4.16 |\n", "7 columns, the row 6"),
        (line(ngl="99 | 99"), "7 columns, the row 8"),
        (line(size="4.02 B"), "size"),
        (line(ngl="CUDA"), "n_gpu_layers"),
        (line("512"), "test"),
        (line().rstrip("|\n"), "begin and end with a bar"),
        (line().lstrip("|"), "begin and end with a bar"),
    ],
)
def test_a_row_that_lost_or_shifted_something_stops_the_file_with_its_line(row: str, why: str) -> None:
    found = read(HEAD + line("tg128") + row + BUILD)
    assert (found.rows, found.held) == ((), 1)
    assert why in found.refusals[0].reason
    assert found.refusals[0].line == 4
    kept = read(HEAD + line("tg128") + row + BUILD, salvage=True)
    assert [kept_row.test.name for kept_row in kept.rows] == ["tg128"]
    assert kept.refusals == found.refusals


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (HEAD.replace("t/s", "tps"), "`t/s`"),
        (HEAD.replace("| test", "| size"), "`test`"),
        (HEAD.replace("size", "params"), "twice"),
        (HEAD.splitlines(keepends=True)[0], "line of dashes"),
        (HEAD.replace("| --- |", "|", 1), "7 columns"),
    ],
)
def test_a_table_with_a_damaged_header_is_refused_whole_and_once(head: str, why: str) -> None:
    found = read(head + line() + line("tg128") + BUILD, salvage=True)
    assert (found.rows, found.n_refused) == ((), 1)
    assert why in found.refusals[0].reason


def test_rows_without_a_header_above_them_are_refused_once() -> None:
    found = read(line() + line("tg128") + BUILD)
    assert (found.rows, found.n_refused, found.refusals[0].line) == ((), 1, 1)
    after = read(HEAD + line() + BUILD + line("tg128"), salvage=True)
    assert (len(after.rows), after.n_refused) == (1, 1)


@pytest.mark.parametrize(
    "table",
    [
        "| Test | Q4 | Q8_0 |\n|---|---|---|\n| pp512 | 524,39 | 319,07 |\n",
        "| test | before | after | delta |\n|---|---:|---:|---:|\n| pp512 @ d=16,384 | 731 | **855 ± 6** | flat |\n",
        "| Model | Test | t/s master | t/s PR |\n|---|---|---|---|\n| qwen | pp512 | 12.1 | 13.1 |\n",
        "| PP | TG | B | N_KV | T_PP s | S_PP t/s |\n|--|--|--|--|--|--|\n| 128 | 128 | 1 | 256 | 0.1 | 1186.64 |\n",
    ],
)
def test_tables_made_by_hand_or_by_others_are_named_and_do_not_stop_the_file(table: str) -> None:
    alone = read(table)
    assert (alone.rows, [refusal.severity for refusal in alone.refusals]) == ((), ["foreign"])
    assert len(read(HEAD + line() + BUILD + "\n" + table).rows) == 1
    assert len(read(table + "\n" + HEAD + line() + BUILD).rows) == 1


def test_other_tables_of_a_report_are_left_alone() -> None:
    found = read("| part | price |\n|---|---|\n| RAM | 12.00 |\n\n" + HEAD + line() + BUILD)
    assert (len(found.rows), found.refusals) == (1, ())


def test_the_same_setting_again_is_another_repetition_even_with_the_same_rate() -> None:
    found = read(HEAD + line() + line() + BUILD)
    assert len({row.import_key for row in found.rows}) == 2
    assert found.again == ()


def test_a_spread_of_zero_is_not_known_and_one_of_half_the_mean_is_noisy() -> None:
    zero, wide = read(HEAD + line(rate="9.09 ± 0.00") + line(rate="36.25 ± 17.61") + BUILD).rows
    assert (zero.stddev_ts, zero.spread_ts, wide.spread_ts) == (0.0, None, 17.61)
    assert "not known" in zero.doubts[0]
    assert "noisy" in wide.doubts[0]
