"""llama-bench's json and jsonl of several ages, damaged and with other text between, and batched-bench's jsonl."""

import json
from typing import Any

import pytest

from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.found import Found

ROW: dict[str, Any] = {
    "build_commit": "5e1ab07c",
    "build_number": 6721,
    "cpu_info": "AMD Ryzen 9 5900X",
    "gpu_info": "NVIDIA GeForce RTX 3060",
    "backends": "CUDA",
    "model_filename": "/srv/demo.gguf",
    "model_type": "qwen3 4B Q4_K - Medium",
    "model_size": 2491000000,
    "n_gpu_layers": 99,
    "flash_attn": 0,
    "use_mmap": True,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "test_time": "2025-10-11T09:14:02Z",
    "avg_ns": 281748877,
    "stddev_ns": 1461894,
    "avg_ts": 1817.260003,
    "stddev_ts": 9.376994,
    "samples_ns": [281000000, 282497754],
    "samples_ts": [1822.06, 1812.4],
}
BATCHED = (
    '{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 0, "is_pp_shared": 0, "n_gpu_layers": 99, '
    '"n_threads": 8, "n_threads_batch": 8, "pp": 128, "tg": 64, "pl": 2, "n_kv": 384, "t_pp": 0.422602, '
    '"speed_pp": 605.770935, "t_tg": 11.106112, "speed_tg": 23.050371, "t": 11.528713, "speed": 44.410854}\n'
)


def text(**changes: Any) -> str:
    """Return a row of jsonl; a change to None takes the field out."""
    changed = {key: value for key, value in (ROW | changes).items() if value is not None}
    return json.dumps(changed, ensure_ascii=False) + "\n"


def read(content: str, salvage: bool = False) -> Found:
    return read_text(content.encode(), "run.json", salvage=salvage)


def reason(content: str) -> str:
    found = read(content)
    assert found.rows == ()
    return found.refusals[0].reason


def test_a_row_keeps_all_that_it_says() -> None:
    (row,) = read(text()).rows
    assert (row.format, row.line, row.raw) == ("jsonl", 1, text().rstrip())
    assert (row.avg_ts, row.stddev_ts, row.avg_ns, row.repetitions) == (1817.260003, 9.376994, 281748877, 2)
    assert row.settings == {"n_gpu_layers": 99, "flash_attn": "off", "load_mode": "mmap"}
    assert [(sample.n_tokens, sample.elapsed_ns, sample.prompt_ns) for sample in row.samples] == [
        (512, 281000000, 281000000),
        (512, 282497754, 282497754),
    ]
    assert row.tested_at == "2025-10-11T09:14:02Z"
    assert not hasattr(row, "quality")


@pytest.mark.parametrize(("written", "meant"), [(True, "on"), (False, "off"), (-1, "auto"), (0, "off"), (1, "on")])
def test_flash_attention_was_a_switch_and_is_a_number(written: Any, meant: str) -> None:
    assert read(text(flash_attn=written)).rows[0].settings["flash_attn"] == meant


def test_what_an_age_does_not_have_is_not_there_and_what_nobody_knows_is_kept() -> None:
    (row,) = read(text(use_mmap=None, flash_attn=None, n_depth=None, brand_new_knob="auto", n_gpu_layers=-1)).rows
    assert row.settings == {"n_gpu_layers": "all"}
    assert row.extras == {"brand_new_knob": "auto"}
    assert row.test.n_depth == 0


def test_how_files_were_loaded_is_read_by_its_old_names_and_its_new_one() -> None:
    modes = [
        read(text(**changes)).rows[0].settings.get("load_mode")
        for changes in (
            {"use_mmap": False},
            {"use_direct_io": True},
            {"use_mmap": None, "load_mode": "mmap+mlock"},
            {"use_mmap": None},
        )
    ]
    assert modes == ["none", "dio", "mmap+mlock", None]


def test_the_first_versions_named_the_back_end_by_switches() -> None:
    old = {"backends": None, "cuda": True, "metal": False, "blas": True, "f16_kv": True, "n_depth": None}
    (row,) = read(text(**old)).rows
    assert (row.backends, row.settings["type_k"], row.extras["metal"]) == ("CUDA", "f16", "0")
    assert read(text(**old | {"gpu_info": "AMD Radeon RX 7900"})).rows[0].backends == "ROCm"
    assert read(text(**old | {"cuda": False, "blas": False})).rows[0].backends == "CPU"
    assert read(text(backends=None)).rows[0].backends is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"n_gen": None}, "it has no n_gen"),
        ({"avg_ts": None}, "it has no avg_ts"),
        ({"model_type": None, "model_filename": None}, "names no model"),
        ({"n_depth": None, "no_op_offload": 0}, "lost n_depth"),
        ({"n_prompt": 0}, "neither"),
        ({"n_prompt": -512}, "negative"),
        ({"n_prompt": "16,384"}, "not a whole number"),
        ({"avg_ts": -5.0}, "cannot be"),
        ({"avg_ts": "524,39"}, "not a number"),
        ({"stddev_ts": -1.5}, "negative"),
        ({"stddev_ts": 1e305}, "cannot be"),
        ({"cpu_info": "1"}, "no name"),
        ({"type_k": "512"}, "cache"),
        ({"test_time": "11.10.2025 09:14"}, "time"),
        ({"test_time": "2025-02-30T09:14:02Z"}, "time"),
        ({"samples_ns": [281000000]}, "samples_ns has 1 values, samples_ts 2"),
        ({"samples_ns": 5}, "no list"),
        ({"model_type": "x" * 5000}, "too long"),
        ({"avg_ts": 1e300}, "cannot be"),
        ({"'samples": [1]}, "no name of a field"),
        ({"backends": "'CUDA"}, "back ends"),
        ({"model_type": "qwen3 4B'"}, "stray quotation mark"),
        ({"tensor_buft_overrides": "f16"}, "no override"),
    ],
)
def test_a_row_that_lacks_or_contradicts_what_a_result_needs_is_refused(changes: dict[str, Any], why: str) -> None:
    assert why in reason(text(**changes))


@pytest.mark.parametrize(
    "word", ["inf", "-inf", "nan", "-nan", "nan(ind)", "NaN", "Infinity", "1e400", "0", "0.000000"]
)
def test_no_rate_that_is_not_a_finite_number_above_zero_comes_out(word: str) -> None:
    found = read(text().replace("1817.260003", word) + text(n_prompt=0, n_gen=128))
    assert [row.test.name for row in found.rows] == ["tg128"]
    assert [(refusal.line, refusal.severity) for refusal in found.refusals] == [(1, "void")]


def test_a_spread_that_is_no_number_is_not_known() -> None:
    (row,) = read(text().replace("9.376994", "-nan")).rows
    assert (row.avg_ts, row.stddev_ts) == (1817.260003, None)
    assert "-nan" in row.raw


def test_one_repetition_has_no_known_spread() -> None:
    (row,) = read(text(stddev_ts=0.0, samples_ns=[281748877], samples_ts=[1817.26])).rows
    assert (row.stddev_ts, row.spread_ts, row.repetitions) == (0.0, None, 1)
    assert row.doubts == ("It was measured once, so its spread is not known.",)


def test_a_rate_that_contradicts_its_times_is_taken_as_written_with_a_doubt() -> None:
    (row,) = read(text(avg_ts=9817.260003)).rows
    assert row.avg_ts == 9817.260003
    assert "contradicts" in row.doubts[0]


def pretty(*rows: str) -> str:
    return "[\n  " + ",\n  ".join(json.dumps(json.loads(row), indent=4) for row in rows) + "\n]\n"


def test_what_else_was_printed_around_and_between_objects_is_passed_over() -> None:
    first, second = text(), text(n_prompt=0, n_gen=128)
    clean = read(pretty(first, second))
    noisy = pretty(first, second).replace("},\n", "}llama-bench: benchmark 2/2: starting\n,\n")
    noisy = "load_backend: loaded RPC backend\nggml: 0 = GPU | uma: 0\n" + noisy + "[1]    4711 segmentation fault\n"
    assert [row.import_key for row in read(noisy).rows] == [row.import_key for row in clean.rows]
    assert [row.line for row in read(noisy).rows] == [4, 4 + clean.rows[1].line - clean.rows[0].line + 1]


def test_objects_inside_other_objects_are_found() -> None:
    whole = '{"host": "lab3", "results": ' + pretty(text(), text(n_prompt=0, n_gen=128)) + "}\n"
    assert len(read(whole).rows) == 2


@pytest.mark.parametrize("end", [0.2, 0.4, 0.9, 0.99])
def test_a_file_that_is_cut_off_gives_nothing_or_with_salvage_what_is_whole(end: float) -> None:
    whole = pretty(text(), text(n_prompt=0, n_gen=128))
    cut = whole[: int(len(whole) * end)]
    found, kept = read(cut), read(cut, salvage=True)
    assert found.rows == ()
    assert found.held == len(kept.rows) == (end > 0.5)
    assert found.refusals


def test_an_array_that_does_not_end_is_a_file_cut_off() -> None:
    found = read(pretty(text()).rstrip("]\n"))
    assert (found.rows, found.held) == ((), 1)
    assert "does not end" in found.refusals[0].reason


def test_a_lost_brace_or_a_key_that_came_twice_is_named() -> None:
    whole = pretty(text(), text(n_prompt=0, n_gen=128)).splitlines(keepends=True)
    brace = next(at for at, content in enumerate(whole) if at > 3 and content.strip() == "{")
    assert "outside any object" in reason("".join(whole[:brace] + whole[brace + 1 :]))
    assert "twice" in reason("".join([*whole[:4], whole[3], *whole[4:]]))


def test_other_json_is_not_ours() -> None:
    found = read('{"name": "package", "dependencies": {"a": "1"}}')
    assert (found.rows, found.refusals, found.notes) == ((), (), ("nothing of llama-bench's is in it",))


def test_a_name_whose_letters_were_lost_is_no_name() -> None:
    damaged = text().replace("/srv/demo", r"/srv/mod\ufffff\ufffffles/demo")
    (row,) = read(damaged).rows
    assert row.model.filename is None
    assert "model_filename" in row.doubts[0]
    assert read(text(model_filename="/srv/modèles/Žito.gguf")).rows[0].model.filename == "/srv/modèles/Žito.gguf"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_files_of_windows_are_read(encoding: str) -> None:
    raw = text(model_filename="/srv/modèles/a.gguf").replace("\n", "\r\n").encode(encoding)
    (row,) = read_text(raw, "run.json").rows
    assert row.model.filename == "/srv/modèles/a.gguf"


def test_text_cut_within_a_character_is_named() -> None:
    found = read_text((text() + text(n_prompt=0, n_gen=128)).encode("utf-16")[:-1], "run.json")
    assert found.rows == ()
    assert "not UTF-16" in found.refusals[-1].reason


def test_a_deeply_nested_file_ends_soon() -> None:
    assert read('{"a":' * 100_000).rows == ()
    assert read('{"avg_ts": ' * 3000 + "1" + "}" * 3000).rows == ()
    assert read("[" * 100_000 + text()).rows == ()


def test_a_line_of_batched_bench_is_a_prompt_and_tokens_after_it() -> None:
    prompt, tokens = read(BATCHED).rows
    assert (prompt.test.name, prompt.avg_ts, prompt.test.n_parallel) == ("pp128 x2", 605.770935, 2)
    assert (tokens.test.name, tokens.avg_ts, tokens.test.n_depth) == ("tg64 @ d128 x2", 23.050371, 128)
    assert (tokens.stddev_ts, tokens.samples_ns, tokens.spread_ts) == (None, (11106112000,), None)
    assert tokens.settings["n_threads_batch"] == 8
    assert tokens.model.model_type is None


def test_a_shared_prompt_of_batched_bench_is_one_prompt() -> None:
    prompt, tokens = read(BATCHED.replace('"is_pp_shared": 0', '"is_pp_shared": 1')).rows
    assert (prompt.test.n_parallel, tokens.test.n_parallel) == (1, 2)
    assert tokens.extras["is_pp_shared"] == "1"


def test_batched_bench_without_tokens_or_rate_gives_what_it_measured() -> None:
    assert [row.test.kind for row in read(BATCHED.replace('"tg": 64', '"tg": 0')).rows] == ["pp"]
    found = read(BATCHED.replace("23.050371", "inf"))
    assert [row.test.kind for row in found.rows] == ["pp"]
    assert found.refusals[0].severity == "void"
    assert "speed_tg" in reason(BATCHED.replace('"speed_tg": 23.050371, ', ""))
    assert reason(BATCHED[:200])
