"""What tokfleet does not know of a file is left to a build by name, which may; the default build is not even asked."""

import sys
from pathlib import Path

import pytest

from orchestrator.fit import KnownModel
from orchestrator.plan import Plan, make_plan
from schema.errors import ModelError
from schema.sweep import parse_sweep
from tests.command import Command
from tests.factories import make_build, make_fingerprint, make_hardware
from worker import models
from worker.ggml import BY_NAME, unknown_type
from worker.gguf import Tensor, read_header
from worker.gguf_writer import Entry, header_bytes
from worker.inspection import inspect
from worker.like import read_skeleton

F32, FORKS, PACKED = BY_NAME["F32"], unknown_type(139), unknown_type(31)


def keys(architecture: str) -> list[Entry]:
    numbers = {"context_length": 4096, "embedding_length": 32, "block_count": 1, "attention.head_count": 4}
    return [
        ("general.architecture", "string", architecture),
        *((f"{architecture}.{key}", "u32", number) for key, number in numbers.items()),
    ]


def written(
    path: Path, architecture: str = "llama", middle: int = 640, last: int = 160, kinds: tuple[object, ...] = ()
) -> Path:
    """Write a model of four tensors; the second and the last, of `middle` and `last` bytes, have a fork's type."""
    second, fourth = kinds or (FORKS, FORKS)
    tensors = (
        Tensor("token_embd.weight", (32, 8), F32, 0),
        Tensor("blk.0.attn_q.weight", (256, 4), second, 1024),  # type: ignore[arg-type]
        Tensor("output_norm.weight", (32,), F32, 1024 + middle),
        Tensor("output.weight", (256, 2), fourth, 1024 + middle + 128),  # type: ignore[arg-type]
    )
    path.write_bytes(header_bytes(keys(architecture), tensors) + bytes(1024 + middle + 128 + last))
    return path


def test_what_has_an_unknown_type_is_as_large_as_the_room_it_has_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "fork.gguf")
    header = read_header(path, any_type=True)
    assert [tensor.n_bytes for tensor in header.tensors] == [1024, 640, 128, 160]
    assert [tensor.row_bytes for tensor in header.tensors] == [128, 160, 128, 80]
    found = models.describe(models.reference("path", str(path), tmp_path))
    assert (found.n_params, found.weight_bytes) == (256 + 1024 + 32 + 512, 1024 + 640 + 128 + 160)
    assert found.bytes_per_token == found.weight_bytes - 1024 + 128
    assert found.unknown == (
        "has a tensor 'blk.0.attn_q.weight' of the type 139 and 1 more like it, "
        "which the llama.cpp of llama-cpp-python 0.3.36 does not know"
    )


def test_other_readers_of_headers_refuse_it_as_before(tmp_path: Path) -> None:
    path = written(tmp_path / "fork.gguf")
    with pytest.raises(ModelError, match=r"tensor 'blk\.0\.attn_q\.weight' has the unknown type 139\. Use a newer"):
        read_header(path)
    with pytest.raises(ModelError, match="unknown type 139"):
        read_skeleton(path)
    strange = written(tmp_path / "strange.gguf", "hyper-llama", kinds=(F32, F32), middle=4096, last=2048)
    with pytest.raises(ModelError, match="has the architecture 'hyper-llama'"):
        read_skeleton(strange)


def test_a_type_of_the_past_is_called_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "old.gguf", kinds=(PACKED, F32), last=2048)
    unknown = models.describe(models.reference("path", str(path), tmp_path)).unknown
    assert unknown is not None
    assert unknown.startswith("has a tensor 'blk.0.attn_q.weight' of the type Q4_0_4_4, which")


def test_a_file_that_is_cut_is_refused_although_a_type_is_unknown(tmp_path: Path) -> None:
    path = written(tmp_path / "cut.gguf")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(size - 400)
    with pytest.raises(ModelError, match="is not complete"):
        read_header(path, any_type=True)


def test_inspecting_it_shows_what_is_there_and_why_it_does_not_run(tmp_path: Path) -> None:
    shown = inspect(written(tmp_path / "fork.gguf"))
    assert shown.refused is not None
    assert shown.refused.endswith("does not know. Use a newer tokfleet, or another model.")
    assert "type139" in {name for each in shown.classes for name, _ in each.types}


def test_what_no_llama_cpp_can_run_stays_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", kinds=(FORKS, FORKS))
    content = path.read_bytes().replace(b"llama.block_count", b"llama.block_cuont")
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"does not say its llama\.block_count"):
        models.describe(models.reference("path", str(path), tmp_path))


def plan(path: Path, *builds: str) -> Plan:
    host = make_fingerprint(build=make_build(devices=("CPU",)), hardware=make_hardware(gpus=()))
    sweep = parse_sweep(f"models: [{{path: {path}}}]\nbuilds: [{', '.join(builds)}]\n", "f.yaml", path.parent)
    ref = models.reference("path", str(path), path.parent)
    sizes = models.describe(ref)
    known = {str(path): KnownModel(ref=ref, sizes=sizes, unknown=sizes.unknown)}
    offered = {host.host_uid: dict.fromkeys(builds, make_build(devices=("CPU",)))}
    return make_plan(sweep, [host], known, "run-1", builds=offered)


@pytest.mark.parametrize(
    ("architecture", "kinds", "words"),
    [("llama", (FORKS, FORKS), "of the type 139"), ("hyper-llama", (F32, F32), "the architecture 'hyper-llama'")],
)
def test_the_default_build_is_not_asked_and_a_build_by_name_is(
    tmp_path: Path, architecture: str, kinds: tuple[object, ...], words: str
) -> None:
    path = written(tmp_path / "m.gguf", architecture, middle=4096, last=2048, kinds=kinds)
    made = plan(path, "default", "fork")
    assert {job.build for job in made.jobs} == {"fork"}
    (skipped,) = made.skipped
    assert skipped.missing
    assert words in skipped.reason
    assert "or a build by name that knows it" in skipped.reason
    (note,) = made.notes
    assert words in note
    assert note.endswith("unknown to tokfleet, left to build fork.")
    assert plan(path, "default").n_jobs == 0


FORK = """#!{python}
import json, sys
if "--version" in sys.argv: print("version: 1 (f0f0f0f)")
elif "--list-devices" in sys.argv: print("Available devices:")
elif "--help" in sys.argv: print("--n-prompt")
else:
    value = lambda flag: int(sys.argv[sys.argv.index(flag) + 1])
    if value("-p") == 13:
        sys.exit("gguf_init_from_file_impl: tensor 'blk.0.attn_q.weight' has invalid ggml type 139")
    print(json.dumps({{"n_prompt": value("-p"), "n_gen": value("-n"), "n_depth": 0, "samples_ns": [10**9]}}))
"""


@pytest.mark.ray
def test_a_build_that_knows_it_measures_it_and_one_that_does_not_fails_in_its_words(
    tmp_path: Path, standin_python: str
) -> None:
    path, bench, sweep = written(tmp_path / "m.gguf"), tmp_path / "llama-bench", tmp_path / "sweep.yaml"
    bench.write_text(FORK.format(python=sys.executable))
    bench.chmod(0o755)
    sweep.write_text(f"models: [{{path: {path}}}]\ntests: {{n_prompt: [8, 13]}}\nbuilds: fork\nrepeat: 1\n")
    command = Command(tmp_path / "home", standin_python)
    assert command.run("build", "add", "fork", "--llama-bench", str(bench)).returncode == 0
    planned = command.run("plan", str(sweep))
    assert "unknown to tokfleet, left to build fork." in planned.stdout
    done = command.run("run", str(sweep))
    assert done.returncode == 3, done.stderr
    assert [row["test"] for row in command.rows("select test from results")] == ["pp8"]
    (failed,) = command.rows("select message from failures")
    assert "has invalid ggml type 139" in failed["message"]
