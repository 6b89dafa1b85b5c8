"""Every way in which llama.cpp dies, lies or hangs is one failed or annotated attempt, and the rest goes on."""

import os
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from schema.errors import HostError
from schema.host import Fingerprint, Gpu
from schema.job import ModelRef
from schema.record import Record
from schema.settings import Settings
from tests.supervised import BOTH, DECODE, PREFILL, group_of, records, supervise
from worker.build import find_build
from worker.faults import FAULTS, parse

GO_ON = ("flood", "bytes", "mlock", "beyond", "perf", "hold")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what every process started in this test has in its environment."""
    text = f"TOKFLEET_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*text.split("=", 1))
    return text


def left_over(mark: str) -> list[int]:
    """Return the processes of this test that still live; a dead one shows no environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"{mark}\0".encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                found.append(process.pid)
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("decode1", "error", "returned 1: no room left in the context"),
        ("decode2", "error", "returned 2: aborted by a callback"),
        ("decode-1", "error", "returned -1: llama.cpp refused the batch as invalid"),
        ("decode-2", "oom", "returned -2: llama.cpp could not allocate"),
        ("decode-3", "error", "returned -3: the back end failed"),
        ("vram", "oom", "27371.91 MiB could not be allocated on device 0 (CUDA0)"),
        ("vcache", "error", "a quantised V cache needs flash attention"),
        ("encoder", "error", "this model is an encoder"),
        ("eos", "error", "the context holds 0 tokens where the test needs 4"),
        ("clock", "error", "the clock did not advance"),
        ("inf", "garbage", "not an event"),
        ("fork", "no_result", "ended without a result"),
        ("oom", "oom", "could get no more memory"),
    ],
)
def test_each_fault_is_one_failed_attempt_in_words_and_the_rest_goes_on(
    model: ModelRef,
    fingerprint: Fingerprint,
    tmp_path: Path,
    standin_python: str,
    mark: str,
    fault: str,
    kind: str,
    words: str,
) -> None:
    group = group_of(model, PREFILL, DECODE, BOTH, timeout_seconds=600)
    found = records(supervise(group, fingerprint, tmp_path, standin_python, f"{fault}@decode:2#4"))
    assert [r.status for r in found] == ["measured", "failed", "measured"]
    failure = found[1].failure
    assert failure is not None
    assert (failure.kind, failure.stage) == (kind, "decode")
    assert words in failure.message
    assert len(found[1].samples) == 1
    assert all(sample.n_tokens == 4 and sample.elapsed_ns > 0 for sample in found[1].samples)
    assert left_over(mark) == []


@pytest.mark.parametrize("fault", ["vram@load", "vram@context", "vcache@context", "fork@load", "sigill@start"])
def test_a_fault_before_anything_is_measured_has_no_samples(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, mark: str, fault: str
) -> None:
    group = group_of(model, PREFILL, timeout_seconds=600)
    (found,) = records(supervise(group, fingerprint, tmp_path, standin_python, fault))
    assert found.failure is not None
    assert found.failure.stage == fault.partition("@")[2]
    assert found.samples == ()
    assert left_over(mark) == []


@pytest.mark.parametrize("stage", ["load", "decode"])
def test_a_hang_that_ignores_signals_and_has_a_child_on_our_pipes_is_ended_with_it(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, mark: str, stage: str
) -> None:
    group = group_of(model, DECODE, BOTH, timeout_seconds=5.0)
    found = records(supervise(group, fingerprint, tmp_path, standin_python, f"hang_sigterm@{stage}"))
    assert found[0].failure is not None
    assert (found[0].failure.kind, found[0].failure.stage) == ("timeout", stage)
    assert found[1].status == ("failed" if stage == "load" else "measured")
    assert left_over(mark) == []


def test_a_death_after_the_last_repetition_is_in_the_end_and_keeps_the_samples(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    first, second = records(
        supervise(group_of(model, DECODE, PREFILL), fingerprint, tmp_path, standin_python, "segv@end#4")
    )
    assert first.failure is not None
    assert (first.failure.stage, first.failure.signal, len(first.samples)) == ("end", "SIGSEGV", 3)
    assert second.status == "measured"


def test_after_an_illegal_instruction_the_build_is_not_tried_again(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = group_of(model, PREFILL, DECODE, BOTH)
    first, second, third = records(supervise(group, fingerprint, tmp_path, standin_python, "sigill@load"))
    for record in (first, second, third):
        assert record.failure is not None
        assert record.failure.signal == "SIGILL"
        assert "built for another CPU" in record.failure.message
    assert "Not tried" in (second.failure.message if second.failure else "")
    assert second.placement is not None
    assert second.placement.child_pid is None


@pytest.mark.parametrize("fault", [name for name in GO_ON if name != "hold"])
def test_what_a_process_survives_leaves_a_measured_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, fault: str
) -> None:
    (found,) = records(supervise(group_of(model, BOTH), fingerprint, tmp_path, standin_python, f"{fault}@prefill:2"))
    assert found.status == "measured"
    assert len(found.samples) == 3
    assert all(sample.elapsed_ns > 0 for sample in found.samples)


def test_mlock_that_was_refused_is_not_in_effect_and_is_noted(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = group_of(model, PREFILL, settings=Settings(load_mode="mmap+mlock"))
    (found,) = records(supervise(group, fingerprint, tmp_path, standin_python, "mlock@load"))
    assert found.status == "measured"
    assert found.in_effect["load_mode"].value == "mmap"
    assert any("mlock was refused (Cannot allocate memory)" in reason for reason in found.quality_reasons)
    (found,) = records(supervise(group, fingerprint, tmp_path, standin_python))
    assert found.in_effect["load_mode"].value == "mmap+mlock"


def test_a_context_beyond_what_the_model_was_trained_for_is_noted(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    (found,) = records(supervise(group_of(model, PREFILL), fingerprint, tmp_path, standin_python, "beyond@context"))
    assert found.status == "measured"
    assert "a context of 4096 tokens, of which the model was trained for 256" in found.quality_reasons


def test_layers_for_a_gpu_that_the_build_cannot_use_are_stored_as_none_and_noted(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    def measured(host: Fingerprint, layers: int) -> Record:
        group = group_of(model, PREFILL, settings=Settings(n_gpu_layers=layers))
        return records(supervise(group, host, tmp_path, standin_python))[0]

    gpu = Gpu(vendor="nvidia", name="NVIDIA GeForce RTX 3060")
    with_gpu = replace(fingerprint, hardware=replace(fingerprint.hardware, gpus=(gpu,)))
    found = measured(with_gpu, 99)
    assert found.in_effect["n_gpu_layers"].value == 0
    assert any("99 was asked for and 0 are on the GPU" in reason for reason in found.quality_reasons)
    assert not any("n_gpu_layers" in reason for reason in measured(with_gpu, 0).quality_reasons)


def test_a_library_for_another_cpu_is_named_when_it_is_asked_what_it_is(
    standin_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKFLEET_FAULT", "sigill@build")
    with pytest.raises(HostError, match=r"illegal instruction.*built for another CPU"):
        find_build(standin_python, tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("abort", "not FAULT@STAGE"),
        ("abrot@decode", "did you mean abort"),
        ("abort@decoding", "did you mean decode"),
        ("abort@decode:x", "not FAULT@STAGE"),
    ],
)
def test_a_misspelt_fault_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)
    end = subprocess.run(
        [sys.executable, "-m", "worker.standin", "--build"],
        env=os.environ | {"TOKFLEET_FAULT": text},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert problem in end.stderr
    assert end.returncode != 0


def test_every_fault_is_documented_with_what_the_attempt_says() -> None:
    page = (Path(__file__).parents[1] / "docs" / "faults.md").read_text()
    assert [name for name in FAULTS if f"`{name}`" not in page] == []
