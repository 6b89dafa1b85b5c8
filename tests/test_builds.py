import json
import os
import sys
from pathlib import Path

import pytest

from schema.errors import HostError
from schema.job import Job, Test
from schema.settings import Settings
from tests.command import Command
from tests.factories import make_job
from worker.builds import NamedBuild, add_build, find_named, named_builds, remove_build
from worker.llama_bench import CannotError, arguments, find_llama_bench, one_row, samples

HELP = """usage: llama-bench [options]
  -p, --n-prompt <n>                                (default: 512)
"""


def binary(directory: Path, name: str = "llama-bench", **answers: str) -> str:
    """Return a script that answers options as a llama-bench does."""
    path = directory / name
    cases = "".join(f"--{option.replace('_', '-')}) cat <<'EOF'\n{text}\nEOF\n;;\n" for option, text in answers.items())
    path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\n')
    path.chmod(0o755)
    return str(path)


def test_a_build_is_kept_under_its_name_until_it_is_removed(tmp_path: Path) -> None:
    vulkan = NamedBuild(name="vulkan", kind="python", path="/opt/vulkan/bin/python")
    add_build(vulkan, tmp_path)
    add_build(NamedBuild(name="fork", kind="llama-bench", path="/opt/fork/llama-bench"), tmp_path)
    assert list(named_builds(tmp_path)) == ["vulkan", "fork"]
    assert find_named("vulkan", tmp_path, "python3") == vulkan
    assert remove_build("vulkan", tmp_path) == vulkan
    assert list(named_builds(tmp_path)) == ["fork"]


def test_default_is_the_python_that_was_chosen_for_the_run(tmp_path: Path) -> None:
    assert find_named("default", tmp_path, "/opt/python") == NamedBuild(
        name="default", kind="python", path="/opt/python"
    )


@pytest.mark.parametrize("name", ["default", "", "a b", "../x", "-x", "x" * 65, "ü"])
def test_a_name_that_could_be_something_else_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostError, match="cannot be a build's name"):
        add_build(NamedBuild(name=name, kind="python", path="/p"), tmp_path)


def test_a_name_that_is_taken_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    add_build(NamedBuild(name="a", kind="python", path="/p"), tmp_path)
    with pytest.raises(HostError, match=r"is there already \(/p\)"):
        add_build(NamedBuild(name="a", kind="python", path="/q"), tmp_path)
    with pytest.raises(HostError, match="no build called b, only default, a"):
        find_named("b", tmp_path, "python3")
    with pytest.raises(HostError, match="There is no build called b; there are a"):
        remove_build("b", tmp_path)


@pytest.mark.parametrize("content", ["", "{", '[{"name": "a"}]', "3", '["a"]'])
def test_a_damaged_list_of_builds_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "builds.json").write_text(content)
    with pytest.raises(HostError, match=r"builds\.json cannot be read"):
        named_builds(tmp_path)


def test_a_llama_bench_says_what_it_is(tmp_path: Path) -> None:
    version = "version: 7012 (0c1e57098)\nbuilt with GNU 13.2.0 for x86_64-linux-gnu"
    listed = "Available devices:\n  CUDA0: NVIDIA H200 (143771 MiB, 142000 MiB free)\n"
    build = find_llama_bench(binary(tmp_path, version=version, list_devices=listed, help=HELP))
    assert (build.binding, build.llama_cpp_commit, build.method) == ("llama-bench 7012", "0c1e57098", "llama-bench")
    assert (build.backends, build.gpu_offload) == (("CUDA", "CPU"), True)
    assert build.devices == ("CUDA0 (NVIDIA H200 (143771 MiB, 142000 MiB free))", "CPU")
    assert build.compiler == "GNU 13.2.0 for x86_64-linux-gnu"


def test_an_old_llama_bench_that_knows_no_version_is_told_from_another_by_its_bytes(tmp_path: Path) -> None:
    old = find_llama_bench(binary(tmp_path, "old", help=HELP))
    other = find_llama_bench(binary(tmp_path, "other", help=HELP + "\n"))
    assert (old.llama_cpp_commit, old.binding, old.devices) == (None, "llama-bench", ("CPU",))
    assert old.build_id != other.build_id


def test_what_is_no_llama_bench_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="is no llama-bench"):
        find_llama_bench(binary(tmp_path, help="usage: something else"))
    with pytest.raises(HostError, match="cannot be read: No such file"):
        find_llama_bench(str(tmp_path / "nowhere"))
    (tmp_path / "text").write_text("hello")
    with pytest.raises(HostError, match="cannot be started: Permission denied"):
        find_llama_bench(str(tmp_path / "text"))


@pytest.mark.parametrize(
    ("test", "settings", "expected"),
    [
        (Test(n_prompt=512, n_gen=0), {}, "-p 512 -n 0 -t 4"),
        (Test(n_prompt=0, n_gen=128, n_depth=4096), {}, "-p 0 -n 128 -d 4096 -t 4"),
        (Test(n_prompt=512, n_gen=128), {}, "-p 0 -n 0 -pg 512,128 -t 4"),
        (
            Test(n_prompt=1, n_gen=0),
            {"flash_attn": "on", "no_kv_offload": "on", "repack": "off", "type_v": "q8_0", "n_ubatch": 64},
            "-p 1 -n 0 -t 4 -ub 64 -ctv q8_0 -fa 1 -nkvo 1 --repack 0",
        ),
        (
            Test(n_prompt=1, n_gen=0),
            {"n_gpu_layers": 20, "split_mode": "none", "lazy_mode": "off", "prio": "high", "load_mode": "none"},
            "-p 1 -n 0 -t 4 -ngl 20 -sm none -lm none -lzm off --prio 2",
        ),
    ],
)
def test_a_job_becomes_llama_benchs_arguments_without_its_defaults(
    test: Test, settings: dict[str, str | int], expected: str
) -> None:
    assert " ".join(arguments(test, Settings(**settings), 4)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("test", "settings"),
    [
        (Test(n_prompt=0, n_gen=8, n_parallel=2), Settings()),
        (Test(n_prompt=0, n_gen=0, n_verify=2), Settings()),
        (Test(n_prompt=8, n_gen=0), Settings(n_threads_batch=2)),
    ],
)
def test_what_llama_bench_cannot_do_is_refused_in_words(test: Test, settings: Settings) -> None:
    with pytest.raises(CannotError, match="llama-bench"):
        arguments(test, settings, 4)


def row(**fields: object) -> dict[str, object]:
    return {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "samples_ns": [10, 11]} | fields


def job(test: Test) -> Job:
    return make_job(test=test, repetitions=2)


def test_the_repetitions_of_a_row_become_samples() -> None:
    prefill, decode, both = Test(n_prompt=512, n_gen=0), Test(n_prompt=0, n_gen=8), Test(n_prompt=4, n_gen=8)
    found = list(samples(row(), job(prefill)))
    assert [(sample.repetition, sample.elapsed_ns, sample.prompt_ns) for sample in found] == [(1, 10, 10), (2, 11, 11)]
    (first, _) = samples(row(n_prompt=0, n_gen=8), job(decode))
    assert (first.n_tokens, first.prompt_ns, first.gen_ns) == (8, None, 10)
    (first, _) = samples(row(n_prompt=4, n_gen=8), job(both))
    assert (first.n_tokens, first.prompt_ns, first.gen_ns) == (12, None, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_prompt": 128},
        {"n_depth": 64},
        {"samples_ns": [10]},
        {"samples_ns": [10, 0]},
        {"samples_ns": [10, -1]},
        {"samples_ns": [10, 1.5]},
        {"samples_ns": [10, None]},
        {"samples_ns": None},
    ],
)
def test_a_row_that_is_not_what_was_asked_for_gives_no_sample(wrong: dict[str, object]) -> None:
    with pytest.raises(CannotError):
        list(samples(row(**wrong), job(Test(n_prompt=512, n_gen=0))))


@pytest.mark.parametrize("text", ["", "no json", '{"a": 1}\n{"a": 2}', "[1]\n3"])
def test_output_without_exactly_one_result_is_refused(text: str) -> None:
    with pytest.raises(CannotError, match="results where one was asked for"):
        one_row(text)


def test_chatter_around_the_result_does_no_harm() -> None:
    assert one_row('load_backend: loaded CPU\n{"n_prompt": 1}\ndone\n') == {"n_prompt": 1}


BENCH = """#!{python}
import json, os, sys
if "--version" in sys.argv: print("version: 1 (abc1234)")
elif "--list-devices" in sys.argv: print("Available devices:")
elif "--help" in sys.argv: print("--n-prompt")
else:
    value = lambda flag: int(sys.argv[sys.argv.index(flag) + 1])
    if value("-p") == 13:
        print("ggml_abort: GGML_ASSERT(n > 0) failed", file=sys.stderr, flush=True)
        os.abort()
    print("llama-bench: benchmark 1/1: prompt run 1/2", file=sys.stderr)
    print(json.dumps({{"n_prompt": value("-p"), "n_gen": value("-n"), "n_depth": 0, "samples_ns": [10**9] * value("-r"),
                      "model_type": "made up"}}))
"""


SWEEP = """
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 13]}
builds: [default, fork, absent]
repeat: 2
"""


@pytest.mark.ray
def test_a_sweep_over_builds_measures_each_with_its_own_and_says_what_is_missing(
    standin_python: str, tmp_path: Path
) -> None:
    bench, sweep = tmp_path / "llama-bench", tmp_path / "sweep.yaml"
    bench.write_text(BENCH.format(python=sys.executable))
    bench.chmod(0o755)
    sweep.write_text(SWEEP)
    command = Command(tmp_path / "home", standin_python)
    assert command.run("build", "add", "fork", "--llama-bench", str(bench)).returncode == 0
    done = command.run("run", str(sweep), "--yes")
    assert done.returncode == 3, done.stderr
    assert "This host has no build called absent, only default, fork" in done.stderr
    rows = command.rows("select asked_build, test, method, build_commit, avg_ts, n_samples from results order by 1, 2")
    assert [(row["asked_build"], row["test"]) for row in rows] == [
        ("default", "pp13"),
        ("default", "pp8"),
        ("fork", "pp8"),
    ]
    assert rows[2] | {"method": "llama-bench", "avg_ts": 8.0, "n_samples": 2, "build_commit": "abc1234"} == rows[2]
    (failed,) = command.rows("select asked_build, test, message from failures")
    assert (failed["asked_build"], failed["test"]) == ("fork", "pp13")
    assert "was ended by signal 6" in failed["message"]
    assert "GGML_ASSERT(n > 0) failed" in failed["message"]


def test_the_command_line_lists_adds_and_removes_builds(standin_python: str, tmp_path: Path) -> None:
    command = Command(tmp_path / "home", standin_python)
    bench = binary(tmp_path, help=HELP)
    assert command.run("build", "add", "b", "--llama-bench", bench).stdout == "b: llama-bench, llama.cpp ?, CPU\n"
    listed = json.loads(command.run("build", "list", "--format", "json").stdout)
    assert [(row["name"], row["path"]) for row in listed] == [("default", standin_python), ("b", bench)]
    again = command.run("build", "add", "b", "--llama-bench", bench)
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    both = command.run("build", "add", "c", "--llama-bench", bench, "--python", bench)
    assert (both.returncode, "not both" in both.stderr) == (2, True)
    os.remove(bench)
    broken = command.run("build", "list", "--format", "json")
    assert "b: The llama-bench" in broken.stderr
    assert json.loads(broken.stdout)[1]["commit"] is None
    assert "is no longer offered" in command.run("build", "remove", "b").stdout
    assert command.run("build", "remove", "b").returncode == 1
