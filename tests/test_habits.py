from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.cli.habits import explain, numbers
from schema.errors import UsageError
from schema.sweep import parse_sweep


def habit(line: str) -> tuple[str, str | None]:
    found = explain(["run", *line.split()])
    assert found is not None
    return found.text, found.sweep


def test_a_llama_bench_command_becomes_the_sweep_file_that_means_the_same() -> None:
    text, sweep = habit("-m models/tiny.gguf -p 512,1024 -n 128 -ngl 99 -fa 1 -r 3")
    assert "-p is tests.n_prompt" in text
    assert "-ngl is params.n_gpu_layers" in text
    assert "-r is repeat" in text
    assert len(text.splitlines()) == 1
    assert sweep == (
        'name: "tiny"\n'
        "models:\n"
        '  - path: "models/tiny.gguf"\n'
        "tests: {n_prompt: [512, 1024], n_gen: [128]}\n"
        "params: {n_gpu_layers: [all], flash_attn: [on]}\n"
        "repeat: 3"
    )


def test_a_comma_in_tensor_split_is_explained_and_left_out() -> None:
    text, sweep = habit("-m tiny.gguf -fa on -mmp 0 -ts 5,5")
    assert len(text.splitlines()) == 2
    assert "left out: -ts" in text
    assert "`5,5` with a comma means more runs" in text
    assert "`5/5`, means shares" in text
    assert sweep is not None
    assert "params: {flash_attn: [on], mmap: [off]}" in sweep
    assert "split" not in sweep


def test_combined_tests_and_absent_parts_are_as_llama_bench_means_them() -> None:
    assert "tests: {pg: [[512, 128]]}" in str(habit("-m a.gguf -pg 512,128 -p 0 -n 0")[1])
    assert "tests: {n_prompt: [512], n_gen: [64]}" in str(habit("-m a.gguf -n 64")[1])
    assert "tests: {n_prompt: [512], n_gen: [128], pg: [[8, 60]]}" in str(habit("-m a.gguf -pg 8,60")[1])


def test_beside_a_sweep_file_only_the_names_are_told() -> None:
    assert habit("--repetition 3 sweep.yaml") == (
        "These are options of llama-bench; a sweep file has them by other names: --repetition is repeat.",
        None,
    )


def test_arguments_that_are_not_llama_benchs_are_left_to_others() -> None:
    assert explain(["run", "sweep.yaml", "--yess"]) is None


@pytest.mark.parametrize(
    "line",
    [
        "-p 0 -n 0",
        "-p -512",
        "-p 99999999999999999999",
        "-r 0",
        "-r 1,2",
        "-p 12x",
        "-pg 512",
        "-p 1-99999",
        "-n",
        "-t 1..4",
    ],
)
def test_numbers_that_cannot_be_meant_are_refused_in_one_short_line(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        habit(f"{line} -m tiny.gguf" if line != "-n" else "-m tiny.gguf -n")
    assert len(str(caught.value)) < 160
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("512", [512]),
        ("512,1024", [512, 1024]),
        ("1-4", [1, 2, 3, 4]),
        ("1-8*2", [1, 2, 4, 8]),
        ("0-64+32", [0, 32, 64]),
    ],
)
def test_lists_and_ranges_are_read_as_llama_bench_reads_them(value: str, expected: list[int]) -> None:
    assert numbers(value) == expected


@pytest.mark.parametrize("value", ["5-5+0", "0-9*2", "3-1", "9-9*1"])
def test_a_range_that_does_not_advance_ends(value: str) -> None:
    with suppress(ValueError):
        assert len(numbers(value)) <= 1


@pytest.mark.parametrize(
    "line",
    [
        "-m tiny.gguf -p 512,1024 -n 128 -ngl 99 -fa 1 -r 3",
        "-m tiny.gguf -fa on -mmp 0 -ts 5,5",
        "-m a:b.gguf,#c.gguf -pg 512,128 -p 0 -n 0 -d 0,4096 -t 1-8*2 -b 512 -ub 128 -ctk q8_0 -ctv f16 -fa 0,1,auto",
    ],
)
def test_the_sweep_file_that_comes_out_is_one(line: str) -> None:
    sweep = habit(line)[1]
    assert sweep is not None
    assert parse_sweep(sweep, "sweep.yaml", Path("/models")).models
