import shlex
from pathlib import Path

import pytest

from orchestrator.cli.habits import explain
from orchestrator.interchange.llama_bench import translate
from schema.errors import UsageError


def habit(line: str, command: str = "run") -> tuple[str, str | None]:
    found = explain([command, *shlex.split(line)])
    assert found is not None
    return found.text, found.line


def test_a_llama_bench_command_becomes_the_bench_command_that_does_it() -> None:
    text, line = habit("-m models/tiny.gguf -p 512,1024 -n 128 -ngl 99 -fa 1 -r 3")
    assert "`tokfleet bench` takes as they are" in text
    assert len(text.splitlines()) == 1
    assert line == "tokfleet bench -m models/tiny.gguf -p 512,1024 -n 128 -ngl 99 -fa 1 -r 3"


def test_the_line_can_be_pasted_into_a_shell_and_keeps_our_own_options() -> None:
    assert habit("-m 'a b.gguf' --yes -ot 'exps=CPU;x=CPU' --db out.sqlite")[1] == (
        "tokfleet bench -m 'a b.gguf' -ot 'exps=CPU;x=CPU' --yes --db out.sqlite"
    )


def test_after_plan_the_line_prints_the_sweep_file() -> None:
    assert habit("-m tiny.gguf -p 512", "plan")[1] == "tokfleet bench --print-sweep -m tiny.gguf -p 512"


def test_without_a_model_the_line_has_a_place_for_one() -> None:
    text, line = habit("-p 512 -n 0")
    assert line == "tokfleet bench -m FILE.gguf -p 512 -n 0"
    assert len(text.splitlines()) == 1


def test_a_comma_in_tensor_split_is_explained() -> None:
    text, line = habit("-m tiny.gguf -fa on -mmp 0 -ts 5,5")
    assert "`5,5` with a comma means more runs" in text
    assert "`5/5`, means shares" in text
    assert line == "tokfleet bench -m tiny.gguf -fa on -mmp 0 -ts 5,5"


def test_options_that_are_refused_are_left_out_of_the_line_with_the_reason() -> None:
    text, line = habit("-m tiny.gguf -o json --delay 5 -p 8 --no-warmup")
    assert line == "tokfleet bench -m tiny.gguf -p 8"
    assert [said.split(" ")[0] for said in text.splitlines()[1:]] == ["-o", "--delay", "--no-warmup"]
    assert "a warm-up is always done" in text


def test_beside_a_sweep_file_only_the_names_are_told() -> None:
    for written in ("-r 3", "--repetition 3", "--repeat 3"):
        assert habit(f"{written} sweep.yaml") == (
            "These are options of llama-bench; a sweep file has them by other names: -r is repeat.",
            None,
        )
    text, _ = habit("sweep.yaml -ngl 99 -o json")
    assert "-ngl is params.n_gpu_layers." in text
    assert "-o is left out: rows go to the database" in text


def test_arguments_that_are_not_llama_benchs_are_left_to_others() -> None:
    assert explain(["run", "sweep.yaml", "--yess"]) is None
    assert explain(["plan", "--db", "-p"]) is None


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
        habit(f"-m tiny.gguf {line}")
    assert len(str(caught.value)) < 160
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "-m tiny.gguf -p 512,1024 -n 128 -ngl 99 -fa 1 -r 3",
        "-m a:b.gguf,#c.gguf -pg 512,128 -p 0 -n 0 -d 0,4096 -t 1-8*2 -b 512 -ub 128 -ctk q8_0 -ctv f16 -fa 0,1,auto",
    ],
)
def test_the_line_that_comes_out_asks_for_the_same(line: str) -> None:
    command = shlex.split(str(habit(line)[1]))
    assert command[:2] == ["tokfleet", "bench"]
    assert translate(command[2:], Path("/models")) == translate(shlex.split(line), Path("/models"))
