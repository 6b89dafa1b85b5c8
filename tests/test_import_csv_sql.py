"""llama-bench's csv and sql of several ages, dumps, and what is wrong with published ones."""

import pytest

from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.found import Found

FIELDS = (
    *("build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type"),
    *(
        "model_size",
        "n_threads",
        "n_prompt",
        "n_gen",
        "n_depth",
        "test_time",
        "avg_ns",
        "stddev_ns",
        "avg_ts",
        "stddev_ts",
    ),
)
PP = (
    *("5e1ab07c", "6721", "AMD Ryzen 9 5900X", "NVIDIA A, NVIDIA B", "CUDA", "/srv/a.gguf", "qwen3 4B Q4_0"),
    *("2491000000", "12", "512", "0", "0", "2025-10-11T09:14:02Z", "281748877", "1461894", "1817.260003", "9.376994"),
)
TG = (*PP[:9], "0", "128", "0", "2025-10-11T09:14:09Z", "2088029939", "4188485", "61.302000", "0.122760")
HEAD = ",".join(FIELDS) + "\n"


def line(values: tuple[str, ...]) -> str:
    return ",".join(f'"{value}"' for value in values) + "\n"


def create(table: str = "llama_bench") -> str:
    return f"CREATE TABLE IF NOT EXISTS {table} (\n" + ",\n".join(f"  {name} TEXT" for name in FIELDS) + "\n);\n\n"


def insert(values: tuple[str, ...], table: str = "llama_bench", fields: tuple[str, ...] = FIELDS) -> str:
    quoted = ", ".join(f"'{value}'" for value in values)
    return f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({quoted});\n"


def read(text: str, salvage: bool = False) -> Found:
    return read_text(text.encode(), "run", salvage=salvage)


def shown(found: Found) -> list[tuple[str, float, float | None]]:
    return [(row.test.name, row.avg_ts, row.stddev_ts) for row in found.rows]


BOTH = [("pp512", 1817.260003, 9.376994), ("tg128", 61.302, 0.12276)]


def test_csv_and_sql_say_the_same_and_have_the_same_keys() -> None:
    table = read(HEAD + line(PP) + line(TG))
    dump = read(create() + insert(PP) + insert(TG))
    assert shown(table) == shown(dump) == BOTH
    assert [row.import_key for row in table.rows] == [row.import_key for row in dump.rows]
    assert [row.line for row in dump.rows] == [21, 22]


def test_a_row_with_more_or_fewer_values_than_the_header_is_refused_with_both_numbers() -> None:
    for values, number in ((PP[:-1], 16), ((*PP[:2], "1", *PP[2:]), 18)):
        found = read(HEAD + line(values) + line(TG))
        assert (found.rows, found.held) == ((), 1)
        assert (found.refusals[0].line, "17 fields" in found.refusals[0].reason) == (2, True)
        assert f"the row {number}" in found.refusals[0].reason
        dump = read(create() + insert(values) + insert(TG))
        assert (dump.refusals[0].line, dump.refusals[0].reason) == (21, f"{number} values for 17 columns")
        assert shown(read(HEAD + line(values) + line(TG), salvage=True)) == BOTH[1:]


def test_a_shift_that_keeps_the_number_of_values_is_seen_by_their_kind() -> None:
    found = read(HEAD + line((*PP[:2], "1", *PP[2:-1])))
    assert found.rows == ()
    assert "cpu_info" in found.refusals[0].reason


def test_two_eras_one_after_another_are_read_each_by_its_own_names() -> None:
    new, place = (*FIELDS[:9], "n_ubatch", *FIELDS[9:]), 9
    newer = (*TG[:place], "512", *TG[place:])
    table = read(HEAD + line(PP) + ",".join(new) + "\n" + line(newer))
    dump = read(
        create()
        + insert(PP)
        + create().replace("n_threads TEXT", "n_threads TEXT, n_ubatch TEXT")
        + insert(newer, fields=new)
    )
    for found in (table, dump):
        assert shown(found) == BOTH
        assert [row.settings.get("n_ubatch") for row in found.rows] == [None, 512]


def test_both_names_of_the_table_and_dumps_without_columns_are_read() -> None:
    assert shown(read(create("test") + insert(PP, "test") + insert(TG, "test"))) == BOTH
    plain = create("test") + "".join(f"INSERT INTO test VALUES({', '.join(map(repr, row))});\n" for row in (PP, TG))
    assert shown(read("PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n" + plain + "COMMIT;\n")) == BOTH
    several = create() + insert(PP).removesuffix(";\n") + ", (" + ", ".join(map(repr, TG)) + ");\n"
    assert shown(read(several.replace("llama_bench", 'main."llama_bench"'))) == BOTH


def test_tables_of_others_and_everything_else_in_a_dump_are_not_looked_at() -> None:
    text = "DROP TABLE x; ATTACH 'y' AS z;\nCREATE TABLE test (a, b);\nINSERT INTO test (a, b) VALUES (1, 2);\n"
    assert read(text + ".shell rm -rf /\n").refusals == ()
    assert shown(read(text.replace("test", "t") + create() + insert(PP) + insert(TG))) == BOTH


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("'f16'", "'f16").replace("'6721'", "'6721", 1),
        lambda text: text.replace("'AMD Ryzen 9 5900X'", "'O'Neil'", 1),
        lambda text: text.replace("'512'", "(SELECT 512)", 1),
        lambda text: text.replace("'512'", "512 + 0", 1),
        lambda text: text.replace("n_prompt, ", "", 1),
        lambda text: text.replace("n_prompt", "n_gen", 2),
        lambda text: text.replace("INSERT INTO llama_bench", "NSERT INTO llama_bench", 1),
        lambda text: text[:-30],
        lambda text: text + "INSERT IN",
        lambda text: text.rstrip(";\n"),
    ],
)
def test_a_damaged_statement_stops_the_file_and_names_its_line(damage: object) -> None:
    assert callable(damage)
    found = read(damage(create() + insert(PP) + insert(TG)))
    assert found.rows == ()
    assert found.refusals[0].line in (21, 22, 23)
    assert found.held >= 1


@pytest.mark.parametrize(
    "text",
    [
        HEAD + line(PP) + line(TG).rstrip('"\n'),
        HEAD + line(PP) + line(TG)[:40],
        HEAD + line(PP) + line(TG).replace('"', ""),
        HEAD + line(PP) + line(TG).replace('","', '";"'),
        HEAD.replace("n_gen,", "n_gen;") + line(PP) + line(TG),
        HEAD.replace("n_gen,", "n_prompt,") + line(PP) + line(TG),
        line(PP) + line(TG),
        HEAD + line(PP) + line(TG).replace('"61.302000"', '"61,302000"'),
        HEAD + line(PP) + line(TG).replace("61.302000", "6.13E+1,5"),
    ],
)
def test_damaged_csv_gives_nothing(text: str) -> None:
    found = read(text)
    assert (found.rows, bool(found.refusals)) == ((), True)


def test_csv_from_other_programs_is_read() -> None:
    plain = HEAD + ",".join(PP).replace("NVIDIA A, NVIDIA B", "NVIDIA A") + "\n"
    assert shown(read(plain)) == BOTH[:1]
    assert shown(read((HEAD + line(PP)).replace('","', '";"').replace(",", ";"))) == BOTH[:1]
    assert shown(read((HEAD + line(PP)).replace('"512"', '"512.0"'))) == BOTH[:1]
    assert read(plain.rstrip("\n")).rows == ()  # its last number may go on


def test_what_else_was_printed_into_csv_is_passed_over() -> None:
    talk = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA A, VMM: yes\n"
    assert shown(read(talk + HEAD + talk + line(PP) + talk + line(TG) + "Aborted (core dumped)\n")) == BOTH


def test_latin_1_is_read_with_a_remark_that_names_the_byte() -> None:
    raw = (HEAD + line((*PP[:5], "/srv/modèles/a.gguf", *PP[6:]))).encode("latin-1")
    found = read_text(raw, "latin1.csv")
    assert found.rows[0].model.filename == "/srv/modèles/a.gguf"
    assert str(raw.index(b"\xe8")) in found.notes[0]


def test_the_same_result_twice_in_a_file_is_one_and_its_lines_are_named() -> None:
    found = read(HEAD + line(PP) + line(TG) + line(PP))
    assert (len(found.rows), found.again) == (2, (4,))


def test_a_file_that_grew_has_the_old_keys_and_new_ones() -> None:
    before = {row.import_key for row in read(HEAD + line(PP)).rows}
    after = {row.import_key for row in read(HEAD + line(PP) + line(TG)).rows}
    assert len(before & after) == 1
    assert len(after) == 2
