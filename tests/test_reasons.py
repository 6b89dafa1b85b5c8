"""What llama.cpp writes into its log when it fails, and what we make of it."""

import pytest

from tests.shared import CASES, needs_cases
from worker.exit import Exit
from worker.failures import of_error, of_exit
from worker.llama_log import LogText
from worker.reasons import decode_error, notes, out_of_memory, reason

CUDA = """\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 27371.91 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 28701528704
llama_model_load: error loading model: unable to allocate CUDA0 buffer
llama_model_load_from_file_impl: failed to load model
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (CUDA, "out of memory: 27371.91 MiB could not be allocated on device 0 (CUDA0)"),
        (
            "ggml_gallocr_reserve_n_impl: failed to allocate CUDA1 buffer of size 2147483648\n"
            "graph_reserve: failed to allocate compute buffers\n",
            "out of memory: 2048.00 MiB could not be allocated on CUDA1",
        ),
        (
            "ggml_metal_buffer_init: error: failed to allocate buffer, size =  4096.50 MiB\n",
            "out of memory: 4096.50 MiB could not be allocated",
        ),
        (
            "ggml_vulkan: Device memory allocation of size 1073741824 failed.\n"
            "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n",
            "out of memory: 1024.00 MiB could not be allocated on device",
        ),
        (
            "alloc_buffer: can't allocate 1048576 Bytes of memory on device\n",
            "out of memory: 1.00 MiB could not be allocated on device",
        ),
        (
            "ggml_aligned_malloc: insufficient memory (attempted to allocate 12000.00 MB)\n",
            "out of memory: 12000.00 MiB could not be allocated",
        ),
        (
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 1: cudaMalloc failed: "
            "out of memory\nllama_model_load: error loading model: unable to allocate backend buffer\n",
            "out of memory: 512.00 MiB could not be allocated on device 1",
        ),
        ("load_tensors: error loading model: unable to allocate ROCm0 buffer\n", "out of memory: memory could not be"),
    ],
)
def test_how_much_memory_was_wanted_on_which_device_is_taken_from_the_log(log: str, words: str) -> None:
    assert (reason(log) or "").startswith(words)
    assert of_error("load", f"llama.cpp could not load x.gguf: {reason(log)}").kind == "oom"


def test_the_cause_of_a_failed_load_stands_before_the_lines_that_end_each() -> None:
    end = "load: error loading model: failed to load model from x.gguf\nf: failed to load model\n"
    assert reason(f"gguf_init: tensor 'a' has invalid type 99\n{end}") == "gguf_init: tensor 'a' has invalid type 99"
    assert reason("f: failed to load model\n") == "f: failed to load model"


@pytest.mark.parametrize("text", ["MemoryError", "terminate called: std::bad_alloc", "CUDA error: out of memory"])
def test_memory_that_ran_out_is_known_without_a_number(text: str) -> None:
    assert out_of_memory(text)


def test_an_allocation_that_was_done_without_is_no_reason() -> None:
    log = "warning: failed to mlock 100-byte buffer (after previously locking 0 bytes): Cannot allocate memory\n"
    assert not out_of_memory(log)
    assert reason(log) is None
    assert not out_of_memory("WARNING: failed to allocate 12.00 MB of pinned memory: out of memory\n")


@pytest.mark.parametrize(
    "line",
    [
        "llama_init_from_model: V cache quantization requires flash_attn",
        "llama_init_from_model: quantized V cache requires flash_attn to be enabled",
        "error: quantized V cache was requested, but this requires Flash Attention",
    ],
)
def test_a_quantised_v_cache_without_flash_attention_is_said_in_words(line: str) -> None:
    assert "set flash_attn to on, or type_v to f16" in (reason(line) or "")


def test_an_encoder_is_named() -> None:
    line = "decode: cannot decode batches with this context (use llama_encode() instead)"
    assert "encoder" in (reason(line) or "")


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "no room left"), (2, "aborted"), (-1, "invalid"), (-2, "allocate"), (-3, "back end"), (-99, "fatal error")],
)
def test_every_code_of_decode_has_a_meaning(code: int, words: str) -> None:
    assert decode_error(code).startswith(f"llama_decode returned {code}: ")
    assert words in decode_error(code)
    assert decode_error(code, "told").endswith("(told)")


def test_what_was_not_heeded_is_noted() -> None:
    log = LogText()
    log.add(0, "warning: failed to mlock 5-byte buffer (after previously locking 7 bytes): Operation not permitted\n")
    log.add(0, "llama_context: n_ctx_per_seq (4096) > n_ctx_train (256) -- possible training context overflow\n")
    assert log.mlock_refused()
    assert notes("".join(log.lines)) == log.notes()
    assert [text.split(" ")[0] for text in log.notes()] == ["mlock", "a"]
    assert notes("llama_context: n_ctx_seq (4096) < n_ctx_train (8192)") == ()


def exit_of(returncode: int, *tail: str) -> Exit:
    return Exit(returncode=returncode, timed_out=False, out_of_memory=False, broken_reply=None, log_tail=tail)


def test_the_last_words_of_a_death_are_part_of_its_reason() -> None:
    failure = of_exit("decode", exit_of(-6, "fine", "ggml.c:12: GGML_ASSERT(n > 0) failed"), 60)
    assert failure.kind == "abort"
    assert failure.message == (
        "The measuring process was aborted by llama.cpp (SIGABRT) (stage: decode): ggml.c:12: GGML_ASSERT(n > 0) failed"
    )
    traceback = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'llama_cpp'")
    assert of_exit("load", exit_of(1, *traceback), 60).message.endswith("No module named 'llama_cpp'")


def test_an_abort_for_want_of_device_memory_is_out_of_memory() -> None:
    failure = of_exit("warmup", exit_of(-6, *CUDA.splitlines(), "#1 a backtrace"), 60)
    assert (failure.kind, failure.signal) == ("oom", "SIGABRT")
    assert "27371.91 MiB" in failure.message


def test_an_end_without_a_result_is_never_explained_by_old_lines() -> None:
    failure = of_exit("decode", exit_of(0, *CUDA.splitlines()), 60)
    assert failure.kind == "no_result"
    assert "MiB" not in failure.message


@needs_cases
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("C4/stderr.txt", "needs flash attention"),
        ("C10/stderr.txt", "27371.91 MiB could not be allocated on device 0 (CUDA0)"),
        ("C11/stderr_embedding_model.txt", "encoder"),
    ],
)
def test_the_logs_of_public_reports_are_understood(name: str, words: str) -> None:
    assert words in (reason((CASES / name).read_text()) or "")
