"""A sweep file becomes a value, or every fault in it is named at once, with its line and what to write."""

from dataclasses import fields
from pathlib import Path

import pytest

from schema.errors import SweepError
from schema.settings import CACHE_TYPES, Settings
from schema.sweep import ModelEntry, Sweep, load_sweep, parse_sweep
from schema.sweep_keys import LEVELS
from tests.shared import CASES

BASE = Path("/sweeps")
MODEL = "models: [{path: tiny.gguf}]\n"


def parse(text: str) -> Sweep:
    return parse_sweep(text, "f.yaml", BASE)


def faults(text: str) -> list[str]:
    with pytest.raises(SweepError) as caught:
        parse(text)
    return list(caught.value.problems)


def fault(text: str) -> str:
    found = faults(text)
    assert len(found) == 1, found
    return found[0]


def names_of(sweep: Sweep) -> list[str]:
    return [test.name for test in sweep.tests]


def test_the_smallest_sweep_has_the_documented_defaults() -> None:
    sweep = parse(MODEL)
    assert sweep.name == "f"
    assert sweep.models == (ModelEntry(source="path", spec="/sweeps/tiny.gguf"),)
    assert names_of(sweep) == ["pp512", "tg128"]
    assert (sweep.hosts, sweep.params, sweep.tags) == ((), {}, {})
    assert (sweep.repetitions, sweep.timeout_seconds) == (5, 1800.0)
    assert sweep.text == MODEL


def test_every_setting_of_a_job_can_be_given_and_has_its_default_otherwise() -> None:
    names = (set(LEVELS["params"]) - {"mmap"}) | {"env", "host_settings"}
    assert {setting.name for setting in fields(Settings)} == names
    sweep = parse(MODEL)
    assert {name: sweep.values(name) for name in names} == {
        setting.name: (setting.default,) for setting in fields(Settings)
    }


def test_a_whole_sweep_is_read() -> None:
    sweep = parse(
        """
name: q4 vs q8
hosts: [boxa, gpu, "ram_gib >= 32  arch=x86_64"]
models:
  - path: /data/a.gguf
  - synthetic: llama-3.2-1b:Q4_K_M
tests: {n_prompt: [512, 2048], n_gen: 128, n_depth: [0, 4096], pg: [[512, 128]]}
params: {n_threads: [physical, all, 4], flash_attn: [on, off], type_k: f16, n_gpu_layers: [0, all], mmap: auto}
repeat: 3
builds: [default]
order: sequential
tags: {why: driver-update}
timeout: 2h
"""
    )
    assert sweep.hosts == ("boxa", "gpu", "ram_gib >= 32 arch=x86_64")
    assert [model.spec for model in sweep.models] == ["/data/a.gguf", "llama-3.2-1b:Q4_K_M"]
    assert names_of(sweep)[:4] == ["pp512", "pp2048", "tg128", "pp512+tg128"]
    assert names_of(sweep)[4] == "pp512 @ d4096"
    assert sweep.params["n_threads"] == ("physical", "all", 4)
    assert list(sweep.params) == ["n_threads", "type_k", "flash_attn", "n_gpu_layers", "load_mode"]
    assert (sweep.repetitions, sweep.timeout_seconds, sweep.name) == (3, 7200.0, "q4 vs q8")
    assert sweep.n_combinations == 2 * 8 * 3 * 2 * 2


def test_a_single_value_stands_for_a_list_of_one() -> None:
    sweep = parse(
        "models: {path: a.gguf}\nhosts: boxa\ntests: {n_prompt: 64}\nparams: {n_threads: 2}\nbuilds: default\n"
    )
    assert (sweep.hosts, sweep.params["n_threads"], len(sweep.models)) == (("boxa",), (2,), 1)


@pytest.mark.parametrize(
    ("tests", "names"),
    [
        ("{n_prompt: 64}", ["pp64"]),
        ("{n_gen: 64}", ["tg64"]),
        ("{n_depth: 1024}", ["pp512 @ d1024", "tg128 @ d1024"]),
        ("{pg: [[64, 8]]}", ["pp64+tg8"]),
        ("{n_prompt: [0, 64], n_gen: 0}", ["pp64"]),
        ("{n_gen: 8, n_depth: [0, 64]}", ["tg8", "tg8 @ d64"]),
        ("{n_gen: 8, n_depth: [64, 0]}", ["tg8", "tg8 @ d64"]),
        ("{n_gen: 8, n_parallel: [1, 4]}", ["tg8", "tg8 x4"]),
        ("{pg: [[64, 8]], n_depth: 32, n_parallel: 2}", ["pp64+tg8 @ d32 x2"]),
        ("{verify: [1, 4]}", ["verify1", "verify4"]),
        ("{n_gen: 8, verify: 2, n_depth: [0, 16]}", ["tg8", "verify2", "tg8 @ d16", "verify2 @ d16"]),
    ],
)
def test_only_the_tests_that_are_given_are_measured(tests: str, names: list[str]) -> None:
    assert names_of(parse(f"{MODEL}tests: {tests}\n")) == names


@pytest.mark.parametrize("tests", ["{n_prompt: 0}", "{n_prompt: 0, n_gen: 0}", "{n_gen: [0], n_depth: 64}"])
def test_zeros_alone_leave_nothing_to_measure(tests: str) -> None:
    assert "f.yaml:2: tests: there is nothing to measure" in fault(f"{MODEL}tests: {tests}\n")


@pytest.mark.parametrize(
    ("written", "meaning"),
    [("on", "on"), ("off", "off"), ("yes", "on"), ("no", "off"), ("True", "on"), ("FALSE", "off"), ("auto", "auto")],
)
@pytest.mark.parametrize("setting", ["flash_attn", "lazy_mode"])
def test_switches_mean_what_they_say(setting: str, written: str, meaning: str) -> None:
    assert parse(f"{MODEL}params: {{{setting}: {written}}}\n").params[setting] == (meaning,)


@pytest.mark.parametrize(("mmap", "load_mode"), [("on", "mmap"), ("off", "none"), ("auto", "auto")])
def test_mmap_is_the_short_form_of_load_mode(mmap: str, load_mode: str) -> None:
    assert parse(f"{MODEL}params: {{mmap: {mmap}}}\n").params == {"load_mode": (load_mode,)}


def test_mmap_beside_load_mode_says_which_one_to_keep() -> None:
    assert "params.mmap: says the same as `load_mode`" in fault(f"{MODEL}params: {{mmap: on, load_mode: dio}}\n")


SETTINGS = {
    "n_threads_batch": ["same", "physical", 4],
    "n_cpu_moe": [0, 12],
    "split_mode": ["none", "layer", "row", "tensor"],
    "main_gpu": [0, 1],
    "tensor_split": ["0", "1/1", "3/1.5"],
    "tensor_buft_overrides": ["none", "exps=CPU", "blk.1.ffn_.*=CPU;output=CUDA0"],
    "devices": ["auto", "none", "CUDA0/CUDA1"],
    "no_kv_offload": ["on", "off"],
    "no_op_offload": ["on", "off"],
    "no_host": ["on", "off"],
    "embeddings": ["on", "off"],
    "repack": ["on", "off"],
    "load_mode": ["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"],
    "lazy_mode": ["auto", "on", "off"],
    "cpu_mask": ["0x0", "0x3"],
    "cpu_strict": ["on", "off"],
    "poll": [0, 50, 100],
    "prio": ["low", "normal", "medium", "high", "realtime"],
    "numa": ["disabled", "distribute", "isolate", "numactl"],
}


@pytest.mark.parametrize(("name", "values"), SETTINGS.items())
def test_every_setting_of_llama_bench_is_a_list(name: str, values: list[int | str]) -> None:
    written = ", ".join(str(value) for value in values)
    assert parse(f"{MODEL}params: {{{name}: [{written}]}}\n").params == {name: tuple(values)}


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("cpu_mask: 3", "is no mask of CPUs; write it to base 16, like 0x3"),
        ("repack: auto", "auto is not a choice here; write on or off"),
        ("tensor_split: 1/", "is not understood; write it like 3/1"),
        ("tensor_split: [[1, 2]]", "a list stands where one value belongs"),
        ("tensor_buft_overrides: exps", "is not understood; write it like blk.1.ffn_.*=CPU"),
        ("devices: 'CUDA0, CUDA1'", "is not understood; write it like CUDA0/CUDA1"),
        ("split_mode: rows", "the nearest is row"),
        ("load_mode: direct", "write one of auto, none, mmap, mlock, mmap+mlock, dio"),
        ("poll: 101", "write a whole number from 0 to 100"),
        ("prio: 2", "write one of low, normal, medium, high, realtime"),
    ],
)
def test_a_setting_that_cannot_be_meant_says_what_to_write(written: str, says: str) -> None:
    assert says in fault(f"{MODEL}params: {{{written}}}\n")


def test_leading_zeros_of_a_mask_do_not_make_another_setting() -> None:
    assert parse(f"{MODEL}params: {{cpu_mask: 0x00FF}}\n").params["cpu_mask"] == ("0xff",)


def test_every_combination_of_variables_is_one_value_of_env() -> None:
    sweep = parse(f"{MODEL}env: {{ROCBLAS_USE_HIPBLASLT: [0, 1], GGML_CUDA_FORCE_MMQ: 1}}\n")
    assert sweep.params["env"] == (
        "GGML_CUDA_FORCE_MMQ=1 ROCBLAS_USE_HIPBLASLT=0",
        "GGML_CUDA_FORCE_MMQ=1 ROCBLAS_USE_HIPBLASLT=1",
    )
    assert sweep.n_combinations == 2 * len(sweep.tests)


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "HOME", "GGML", "ggml_x", "OMP_NUM_THREADS"])
def test_a_variable_that_could_run_something_else_is_refused(name: str) -> None:
    assert f"env.{name}: {name!r} may not be set here" in fault(f"{MODEL}env: {{{name}: 1}}\n")


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("[A]", "a list stands where variables belong"),
        ("{GGML_X: 'a b'}", "has blanks"),
        ("{GGML_X: }", "there is no value"),
        ("{GGML_X: [[1]]}", "a list stands where one value belongs"),
        ("{GGML_X: [1, 1]}", "stands in the list twice"),
    ],
)
def test_an_env_that_cannot_be_meant_says_why(env: str, says: str) -> None:
    assert says in fault(f"{MODEL}env: {env}\n")


@pytest.mark.parametrize(("written", "instead"), [("1", "on"), ("0", "off"), ("-1", "auto"), ("~", "on, off or auto")])
def test_a_number_is_no_switch(written: str, instead: str) -> None:
    assert f"write {instead}" in fault(f"{MODEL}params: {{flash_attn: {written}}}\n")


def test_a_key_called_on_is_reported_as_on() -> None:
    assert "f.yaml:2: params.on: unknown key 'on'" in fault(f"{MODEL}params: {{on: [1]}}\n")


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("1_000", "write 1000"),
        ("+5", "write 5"),
        ("0777", "write 777, or 511 if octal was meant"),
        ("089", "write 89"),
        ("0o17", "write 15"),
        ("0x1F", "write 31"),
        ("0b101", "write 5"),
        ("1e3", "write 1000"),
        ("512.0", "write 512"),
        ("1.5", "has a fraction"),
        ("1e-3", "has a fraction"),
        ("1e999", "write it in plain digits"),
        (".inf", "write the number in plain digits"),
        (".nan", "write the number in plain digits"),
        ("12:30", "a number to base 60"),
        ("2026-11-30", "is a date"),
        ("true", "is a switch"),
        ("on", "is a switch"),
        ("4k", "write 4096"),
        ("'512,1024'", "because of its quotes"),
        ("512,1024", "write a list"),
        ("512 1024", "write a list"),
        ("128-1024", "write the numbers as a list"),
        ("'512'", "write 512 without quotes"),
        ("~", "there is no value"),
        ("", "there is no value"),
        ("null", "there is no value"),
        ("-512", "out of range; write a whole number from 0 to 1048576"),
        ("1048577", "out of range"),
        ("99999999999999999999", "out of range"),
        ("9" * 5000, "out of range"),
        ("many", "'many' is not a whole number; write a whole number from 0 to 1048576"),
        ("٣", "is not a whole number"),
        ("[[1]]", "a list stands where one value belongs"),
        ("[{a: 1}]", "a mapping stands where one value belongs"),
        ("{a: 1}", "a mapping stands where one value belongs"),
        ("[]", "the list is empty"),
    ],
)
def test_what_is_no_plain_number_is_answered_with_what_to_write(written: str, says: str) -> None:
    # A block mapping, so that a comma does not end the value.
    text = f"{MODEL}tests:\n  n_prompt: {written}\n"
    assert fault(text).startswith("f.yaml:3: tests.n_prompt: ")
    assert says in fault(text)


@pytest.mark.parametrize(
    ("setting", "written", "says"),
    [
        ("n_batch", "0", "from 1 to 1048576"),
        ("n_threads", "-1", "from 1 to 1024 or `physical` or `all`"),
        ("n_threads", "pysical", "or `physical` or `all`"),
        ("n_gpu_layers", "-1", "from 0 to 65535 or `all`"),
        ("type_k", "fp16", "the nearest is f16"),
        ("type_v", "Q8_0", "the nearest is q8_0"),
        ("type_k", "~", "there is no value"),
        ("flash_attn", "maybe", "write on, off or auto"),
    ],
)
def test_a_setting_out_of_its_range_is_answered_with_the_range(setting: str, written: str, says: str) -> None:
    assert says in fault(f"{MODEL}params: {{{setting}: {written}}}\n")


def test_every_cache_type_is_known() -> None:
    assert parse(f"{MODEL}params: {{type_k: [{', '.join(CACHE_TYPES)}]}}\n").params["type_k"] == CACHE_TYPES


@pytest.mark.parametrize(
    "text",
    [
        "tests: {n_prompt: [512, 128, 512]}",
        "tests: {pg: [[512, 128], [512, 128]]}",
        "params: {flash_attn: [on, yes]}",
        "hosts: [boxa, boxa]",
    ],
)
def test_a_value_that_comes_twice_is_refused_so_that_no_job_doubles(text: str) -> None:
    assert "stands in the list twice" in fault(f"{MODEL}{text}\n")


def test_a_model_that_comes_twice_under_two_spellings_of_its_path_is_refused() -> None:
    assert "'/sweeps/a.gguf' stands in the list twice" in fault("models: [{path: a.gguf}, {path: ./x/../a.gguf}]\n")


@pytest.mark.parametrize(
    ("written", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("2h", 7200.0), ("'15m'", 900.0), ("168h", 604800.0)]
)
def test_a_timeout_has_a_unit(written: str, seconds: float) -> None:
    assert parse(f"{MODEL}timeout: {written}\n").timeout_seconds == seconds


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("30", "write 30s for seconds or 30m for minutes"),
        ("30 min", "write 30m"),
        ("30 seconds", "write 30s"),
        ("500ms", "write it like 90s, 30m or 2h"),
        ("0s", "from 1s to 168h"),
        ("1000h", "from 1s to 168h"),
        ("12:30", "write it like 90s, 30m or 2h"),
        ("1.5h", "write it like 90s, 30m or 2h"),
        ("", "write it like 90s, 30m or 2h"),
        ("[30m]", "a list stands where one value belongs"),
    ],
)
def test_a_timeout_that_is_none_is_answered_with_how_to_write_one(written: str, says: str) -> None:
    assert says in fault(f"{MODEL}timeout: {written}\n")


@pytest.mark.parametrize("text", ["1.10", "0123", "no", "2026-11-30", "12:30", "1_000", "0x1F", "1e3", "true", ".inf"])
def test_tags_stay_the_text_that_was_written(text: str) -> None:
    sweep = parse(f"{MODEL}name: {text}\ntags: {{version: {text}, {text}: x}}\n")
    assert sweep.tags == {"version": text, text: "x"}
    assert sweep.name == text


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ("{why: }", "there is no value"),
        ("{why: ~}", "there is no value"),
        ("{why: [a]}", "a list stands where one value belongs"),
        ("[a, b]", "a list stands where tags belong"),
        ("why", "write `tags: {why: text}`"),
        ('{why: "a\\nb"}', "cannot be printed"),
        ("{why: " + "x" * 201 + "}", "201 characters"),
        ("{'': x}", "there is no value"),
        ("{" + ", ".join(f"t{number}: x" for number in range(51)) + "}", "there are 51 tags"),
    ],
)
def test_tags_that_cannot_be_kept_with_a_row_are_refused(tags: str, says: str) -> None:
    assert says in fault(f"{MODEL}tags: {tags}\n")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("repetitions: 3", "the nearest is `repeat`"),
        ("repetitons: 3", "the nearest is `repeat`"),
        ("Repeat: 3", "the nearest is `repeat`"),
        ("host: boxa", "the nearest is `hosts`"),
        ("n_threads: 4", "write `n_threads` under `params`"),
        ("ngl: 99", "write `n_gpu_layers` under `params`"),
        ("--n-prompt: 512", "write `n_prompt` under `tests`"),
        ("warmup: false", "a warm-up is always done"),
        ("n_parallel: 4", "write `n_parallel` under `tests`"),
        ("delay: 4", "not in this version"),
        ("colour: red", "unknown key 'colour'; known here: name, hosts"),
        ("defaults: &d {a: 1}", "may be called `x-defaults`"),
        ("n_ctx: 4096", "as large as each test needs"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_or_its_place(key: str, says: str) -> None:
    message = fault(f"{MODEL}{key}\n")
    assert message.startswith(f"f.yaml:2: {key.partition(':')[0]}: ")
    assert says in message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("params: {threads: 4}", "params.threads: unknown key 'threads'; the nearest is `n_threads`"),
        ("params: {cache_type_k: f16}", "the nearest is `type_k`"),
        ("params: {n_prompt: 512}", "write `n_prompt` under `tests`"),
        ("params: {repeat: 3}", "write `repeat` at the top of the file"),
        ("params: {fit_target: 1}", "params.fit_target: not in this version"),
        ("tests: {n_gen: 8, N-PROMPT: 512}", "the nearest is `n_prompt`"),
        ("tests: {n_gen: 8, flash_attn: on}", "write `flash_attn` under `params`"),
        ("tests: {n_gen: 8, x-y: 1}", "unknown key 'x-y'"),
    ],
)
def test_a_key_at_the_wrong_level_is_told_where_it_belongs(text: str, says: str) -> None:
    assert says in fault(f"{MODEL}{text}\n")


def test_keys_that_only_hold_anchors_are_free_at_the_top() -> None:
    sweep = parse(f"x-short: &s {{n_prompt: 64, n_gen: 8}}\n.other: 1\n{MODEL}tests:\n  <<: *s\n  n_prompt: 128\n")
    assert names_of(sweep) == ["pp128", "tg8"]


def test_all_faults_are_named_at_once_in_the_order_of_the_file() -> None:
    found = faults(
        "modles: 3\nrepeat: 1e1\ntests: {n_prompt: 4k, n_gne: 3}\nparams: {mmap: 2}\ntimeout: 30\nrepeat: 2\n"
    )
    assert [line.split(":")[1] for line in found] == ["1", "2", "3", "3", "4", "5", "6"]


MATRIX = """model: tiny.gguf
repetitons: 10
matrix:
  n_gpu_layer: [0, 99]
  n-prompt: [128]
  N_GEN: [64]
  cache_type_k: [f16]
  on: [1]
warmup: false
params: {threads: 4}
"""


def test_a_file_with_the_habits_of_another_tool_has_every_key_answered() -> None:
    found = faults(MATRIX)
    says = [
        "`models`",
        "`repeat`",
        "under `tests`, settings",
        "`n_gpu_layers` under `params`",
        "`n_prompt` under `tests`",
    ]
    says += ["`n_gen` under `tests`", "`type_k` under `params`", "unknown key 'on'", "always done", "`n_threads`"]
    assert [line.split(":")[1] for line in found] == [str(number) for number in range(1, 11)]
    assert [text for text, line in zip(says, found, strict=True) if text not in line] == []


def test_duplicate_keys_are_refused_with_both_lines_beside_the_other_faults() -> None:
    found = faults("model: a.gguf\nmatrix:\n  n_prompt: [128]\n  n_gen: [64]\n  n_prompt: [4096]\nmodel: b.gguf\n")
    assert [line for line in found if "n_prompt: this key stands twice, first in line 3 and again in line 5" in line]
    assert [line for line in found if "model: this key stands twice, first in line 1 and again in line 6" in line]


def test_a_model_may_be_like_a_file_or_on_the_hub() -> None:
    found = parse_sweep(
        "models: [{like: shapes/a.skeleton}, {hf: 'a/b:Q4_K_M'}, {hf: a/b/c.gguf}]\n", "f.yaml", Path("/sweeps")
    )
    assert [(model.source, model.spec) for model in found.models] == [
        ("synthetic", "like:/sweeps/shapes/a.skeleton"),
        ("hf", "a/b:Q4_K_M"),
        ("hf", "a/b/c.gguf"),
    ]


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("models: tiny.gguf", "write `{path: tiny.gguf}`"),
        ("models: [llama-3.2-1b:Q4_K_M]", "write `{synthetic: llama-3.2-1b:Q4_K_M}`"),
        ("models: ", "no value stands where a model belongs"),
        ("models: []", "the list is empty"),
        ("models: [[a]]", "a list stands where a model belongs"),
        ("models: [{}]", "there is no model here"),
        ("models: [{file: a.gguf}]", "models[1].file: unknown key 'file'; the nearest is `path`"),
        ("models: [{path: a.gguf, synthetic: 'a:Q8_0'}]", "cannot be both `path` and `synthetic`"),
        ("models: [{hf: 'Q4_K_M'}]", "models[1].hf: 'Q4_K_M' is not understood; write it like USER/REPOSITORY:Q4_K_M"),
        ("models: [{path: [a.gguf, b.gguf]}]", "write one entry a model"),
        ("models: [{path: ''}]", "there is no value"),
        ('models: [{path: "a\\0b"}]', "cannot be printed"),
        ("models: [{synthetic: llama}]", "is not SHAPE:QUANTISATION"),
        ("models: [{synthetic: 'a b:Q8_0'}]", "is not SHAPE:QUANTISATION"),
        ("name: x", "f.yaml:1: models: the key is missing"),
    ],
)
def test_a_model_that_is_none_is_answered_with_how_to_write_one(models: str, says: str) -> None:
    assert says in fault(f"{models}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("repeat: {min: 3, max: 30}", "repeat: min, max, until and within are not in this version"),
        ("repeat: 0", "from 1 to 1000"),
        ("repeat: 5.0", "write 5"),
        ("order: shuffled", "'shuffled' is not known; write one of sequential, interleaved"),
        ("order: interleave", "the nearest is interleaved, of sequential, interleaved"),
        ("across: hosts", "across: 'hosts' is not known"),
        ("across: [builds, builds]", "builds stands in the list twice"),
        ("rounds: 3", "write `across: [builds]` too"),
        ("rounds: 1", "from 2 to 100"),
        ("builds: [default, ../cuda]", "'../cuda' is not understood; write it like default"),
        ("builds: [default, default]", "default stands in the list twice"),
        ("tests: pp512", "the text 'pp512' stands where keys belong; write `tests: {n_prompt: …}`"),
        ("params:", "no value stands where keys belong"),
        ("tests: {pg: [512, 128]}", "write [[512, 128]]"),
        ("tests: {pg: [[512]]}", "a pair is [n_prompt, n_gen]"),
        ("tests: {pg: [[512, 0]]}", "out of range; write a whole number from 1"),
        ("tests: {n_prompt: [" + ", ".join(str(n) for n in range(1, 300)) + "]}", "299 values; write at most 256"),
        ("hosts: ['ram_gib>=lots']", "hosts: 'lots' is not a number for `ram_gib`"),
        ("hosts: [rma_gib>=3]", "the nearest is `ram_gib`"),
        ("hosts: [[boxa]]", "a list stands where one value belongs"),
        ("name: [a]", "a list stands where one value belongs"),
        ("!!str repeat: 3", "the tag '!!str' has no meaning"),
    ],
)
def test_other_faults_are_answered_with_what_to_write(text: str, says: str) -> None:
    message = fault(f"{MODEL}{text}\n")
    assert message.startswith("f.yaml:2: ")
    assert says in message


def test_the_order_and_what_alternates_are_read() -> None:
    plain = parse(MODEL)
    assert (plain.interleaved, plain.across, plain.rounds) == (False, (), 1)
    assert not parse(f"{MODEL}order: sequential\n").interleaved
    sweep = parse(f"{MODEL}order: interleaved\nacross: [builds, models]\nrounds: 4\n")
    assert (sweep.interleaved, sweep.across, sweep.rounds) == (True, ("models", "builds"), 4)
    assert parse(f"{MODEL}across: builds\n").rounds == 2
    assert parse(f"{MODEL}across: builds\n").n_combinations == 2


def test_more_tests_than_anyone_wants_are_refused() -> None:
    numbers = ", ".join(str(number) for number in range(1, 257))
    assert "these are 65536 tests" in fault(f"{MODEL}tests: {{n_prompt: [{numbers}], n_depth: [{numbers}]}}\n")


def test_paths_start_at_the_file_and_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    file = tmp_path / "mine.yaml"
    file.write_text("models: [{path: models/a.gguf}, {path: ~/b.gguf}, {path: /c.gguf}]\n")
    sweep = load_sweep(file)
    assert [model.spec for model in sweep.models] == [str(tmp_path / "models/a.gguf"), "/home/ada/b.gguf", "/c.gguf"]
    assert sweep.name == "mine"


def test_a_relative_file_name_still_gives_absolute_model_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.yaml").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    assert load_sweep(Path("mine.yaml")).models[0].spec == str(tmp_path / "tiny.gguf")


OTHERS = [file for file in sorted(CASES.glob("*/*.yaml")) if "matrix:" in file.read_text()]


@pytest.mark.parametrize("file", OTHERS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_collected_sweeps_of_another_tool_have_every_key_answered_with_its_line(file: Path) -> None:
    with pytest.raises(SweepError) as caught:
        load_sweep(file)
    problems = caught.value.problems
    answered = {int(problem.removeprefix(f"{file}:").split(":")[0]) for problem in problems}
    written = enumerate(file.read_text().splitlines(), 1)
    foreign = {line for line, text in written if text[:1].isalpha() and text.split(":")[0] not in LEVELS[""]}
    assert len(problems) == len(set(problems))
    assert answered >= foreign
