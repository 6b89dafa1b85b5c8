import pytest

from worker.llama_log import GGML_LOG_LEVEL_DEBUG, LogText

INFO = 2
LOADED = """load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
load_tensors: offloading output layer to GPU
load_tensors: offloaded 17/33 layers to GPU
load_tensors:   CPU_Mapped model buffer size =   168.77 MiB
load_tensors:   CPU_REPACK model buffer size =    84.38 MiB
load_tensors: RPC0[127.0.0.1:50052] model buffer size =   100.00 MiB
llama_kv_cache:        CPU KV buffer size =     1.50 MiB
llama_kv_cache:        CPU KV buffer size =     3.00 MiB
llama_kv_cache: size =    1.50 MiB (   256 cells,   3 layers,  1/1 seqs), K (q8_0):    0.75 MiB, V (f16):    0.75 MiB
sched_reserve:        CPU compute buffer size =    33.00 MiB
llama_model_load_from_file_impl: using device RPC0 (127.0.0.1:50052) (unknown id) - 9 MiB free
llama_context: flash_attn    = auto
llama_context: Flash Attention enabled
"""


@pytest.fixture
def log() -> LogText:
    made = LogText()
    for line in LOADED.splitlines(keepends=True):
        made.add(INFO, line)
    return made


def test_what_was_allocated_is_summed_by_the_kind_of_buffer(log: LogText) -> None:
    assert log.buffers("model") == {
        "CPU_Mapped": 176_968_172,
        "CPU_REPACK": 88_478_843,
        "RPC0[127.0.0.1:50052]": 104_857_600,
    }
    assert log.buffers("KV") == {"CPU": 4_718_592}
    assert log.buffers("compute") == {"CPU": 34_603_008}
    assert log.buffers("RS") == {}


def test_what_is_in_effect_is_read_from_the_last_words_about_it(log: LogText) -> None:
    assert log.layers_offloaded() == 17
    assert log.cache_types() == ("q8_0", "f16")
    assert log.flash_attn() == "on"
    assert log.load_mode() == "mmap"
    assert log.devices_used() == ["RPC0"]
    log.add(INFO, "llama_context: flash_attn is not compatible with Grok - forcing off\n")
    assert log.flash_attn() == "off"


def test_a_log_that_says_nothing_leaves_everything_unknown() -> None:
    log = LogText()
    assert (log.layers_offloaded(), log.flash_attn(), log.load_mode()) == (None, None, None)
    assert (log.cache_types(), log.buffers("model"), log.devices_used()) == ((None, None), {}, [])
    assert log.last_error() == "it gave no reason"


def test_tensors_that_were_moved_are_counted_and_debug_lines_are_not_shown() -> None:
    log = LogText()
    line = "tensor blk.3.ffn_up_exps.weight (12 MiB q4_K) buffer type overridden to CPU\n"
    assert log.add(GGML_LOG_LEVEL_DEBUG, line) is False
    assert log.add(INFO, "shown\n") is True
    assert (log.overridden, log.lines) == ({"CPU": 1}, ["shown\n"])


def test_the_reason_of_a_failure_is_its_last_two_lines() -> None:
    log = LogText()
    for line in ("error one\n", "fine\n", "unable to two\n", "failed three\n"):
        log.add(INFO, line)
    assert log.last_error() == "unable to two; failed three"
