"""One context of a loaded model: what `worker.measure` times."""

import contextlib
import ctypes
import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from schema.record import Effective, Memory
from schema.settings import Settings
from worker import backend, reasons
from worker.engine.model import Model
from worker.engine.params import mismatch, set_field
from worker.seam import Batches, EngineError, Entry

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
GGML_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
"""Values of `enum ggml_type` for the types that a KV cache may have."""


class Context:
    """One context of a model, fresh for each job: the `Engine` that `worker.measure` times."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        n_threads: int,
        n_ctx: int,
        n_threads_batch: int = 0,
        n_parallel: int = 1,
    ) -> None:
        """Make a context of `n_ctx` tokens for `n_parallel` sequences; EngineError in llama.cpp's words if it cannot.

        `n_threads_batch` 0 means as many as `n_threads`.
        """
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch, params.n_ubatch = settings.n_batch, settings.n_ubatch
        params.n_seq_max = n_parallel
        params.n_threads, params.n_threads_batch = n_threads, n_threads_batch or n_threads
        params.type_k, params.type_v = GGML_TYPES[settings.type_k], GGML_TYPES[settings.type_v]
        if hasattr(params, "flash_attn_type"):
            params.flash_attn_type = FLASH_ATTN[settings.flash_attn]
        else:
            set_field(params, "flash_attn", settings.flash_attn == "on")
        params.embeddings = settings.embeddings == "on"
        params.offload_kqv = settings.no_kv_offload == "off"
        set_field(params, "op_offload", settings.no_op_offload == "off", settings.no_op_offload == "on")
        set_field(params, "swa_full", False, needed=False)
        self.model, self._settings = model, settings
        _forget_peak()
        model.log.clear()
        self.pointer = lib.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise EngineError(f"llama.cpp could not make a context of {n_ctx} tokens: {model.log.last_error()}")
        self.n_batch: int = lib.llama_n_batch(self.pointer)
        _check_pair(self.pointer, n_ctx, n_parallel, n_threads)
        self._threadpool = self._make_threadpool(n_threads)
        self._memory = lib.llama_get_memory(self.pointer)
        if not self._memory:
            raise EngineError(
                "this model keeps no context: it is an encoder, such as an embedding model, and cannot decode"
            )
        self.n_vocab, self.bos = model.n_vocab, model.bos

    def _make_threadpool(self, n_threads: int) -> backend.Threadpool | None:
        asked = self._settings
        own = (asked.cpu_mask, asked.cpu_strict, asked.poll, asked.prio)
        plain = Settings()
        if own == (plain.cpu_mask, plain.cpu_strict, plain.poll, plain.prio):
            return None
        strict = asked.cpu_strict == "on"
        pool = backend.Threadpool(lib._lib, n_threads, asked.cpu_mask, strict, asked.poll, asked.prio)
        attach = lib._lib.llama_attach_threadpool
        attach.argtypes, attach.restype = [ctypes.c_void_p] * 3, None
        attach(self.pointer, pool.pointer, None)
        return pool

    def settings_in_effect(self) -> dict[str, Effective]:
        """Return what can be read back of the settings; ask after the context has processed something."""
        log = self.model.log
        type_k, type_v = log.cache_types()
        getters = ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_threads", "n_threads_batch")
        found = {
            name: Effective(value=getattr(lib, f"llama_{name}")(self.pointer), source="getter") for name in getters
        }
        return found | {
            "type_k": Effective(value=type_k, source="log"),
            "type_v": Effective(value=type_v, source="log"),
            "flash_attn": Effective(value=log.flash_attn(), source="log"),
            "embeddings": Effective(value=self._embeddings(), source="getter"),
            "no_kv_offload": Effective(value=self._cache_kept_back(), source="buffers"),
            "cpu_mask": Effective(value=self._mask(), source="affinity"),
        }

    def _embeddings(self) -> str:
        return "on" if lib.llama_get_embeddings(self.pointer) else "off"

    def _cache_kept_back(self) -> str | None:
        """Return whether the cache lies in main memory although layers are on a device; None where none are."""
        if not self.model.load_in_effect["n_gpu_layers"].value:
            return None
        places = self.model.log.buffers("KV")
        return ("on" if all(name.startswith("CPU") for name in places) else "off") if places else None

    def _mask(self) -> str:
        """Return the CPUs that the computing threads may use, as a mask; 0x0 where nobody narrowed them."""
        if self._settings.cpu_mask == "0x0" or not hasattr(os, "sched_getaffinity"):
            return "0x0"
        return hex(sum(1 << cpu for cpu in os.sched_getaffinity(0)))  # of this thread, the first that computes

    def memory(self) -> Memory:
        """Return what the process and llama.cpp's buffers take, the peak since this context was made."""
        log = self.model.log
        cache: dict[str, int] = {}
        for kind in ("KV", "RS"):
            for name, size in log.buffers(kind).items():
                cache[name] = cache.get(name, 0) + size
        return Memory(
            peak_rss_bytes=_peak_bytes(), weights=self.model.weights, cache=cache, compute=log.buffers("compute")
        )

    def notes(self) -> tuple[str, ...]:
        """Return in words what was done otherwise than asked though nothing failed, while loading or since."""
        return (*self.model.notes, *self.model.log.notes())

    def prepare(self, tokens: list[int], size: int) -> Batches:
        """Return `tokens` as batches of at most `size`, so that nothing is allocated in a timed window."""
        array = (lib.llama_token * len(tokens))(*tokens)
        step = ctypes.sizeof(lib.llama_token)
        batches = []
        for first in range(0, len(tokens), size):
            n = min(size, len(tokens) - first)
            chunk = (lib.llama_token * n).from_buffer(array, first * step)
            batches.append(lib.llama_batch_get_one(chunk, n))
        return Batches(batches, keep=array)

    def prepare_entries(self, entries: Sequence[Entry], size: int) -> Batches:
        """Return `entries` (token, position, sequence, whether logits are wanted) as batches of at most `size`."""
        parts = [entries[first : first + size] for first in range(0, len(entries), size)]
        made = [_batch(part) for part in parts]
        return Batches([batch for batch, _ in made], keep=[keep for _, keep in made])

    def process(self, batch: Any) -> None:
        """Submit one batch; raises EngineError when llama.cpp does not process it."""
        code = lib.llama_decode(self.pointer, batch)
        if code != 0:
            raise EngineError(reasons.decode_error(code, reasons.reason("".join(self.model.log.lines))))

    def synchronize(self) -> None:
        """Wait until everything submitted has been computed."""
        lib.llama_synchronize(self.pointer)

    def clear(self) -> None:
        """Empty the context's memory (KV cache)."""
        lib.llama_memory_clear(self._memory, False)

    def n_past(self, sequence: int = 0) -> int:
        """Return how many tokens the context's memory holds of a sequence."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def take_back(self, n_past: int) -> None:
        """Remove the first sequence's tokens from position `n_past` on; EngineError where the model cannot."""
        if not lib.llama_memory_seq_rm(self._memory, 0, n_past, -1):
            raise EngineError("this model cannot take tokens back, so no pass that verifies can be repeated")

    def save(self) -> Any:
        """Return the memory's content, so that `restore` brings it back without computing it again."""
        size = lib.llama_state_seq_get_size(self.pointer, 0)
        state = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(self.pointer, state, size, 0) == 0:
            raise EngineError("llama.cpp could not save the filled context")
        return state

    def restore(self, state: Any, sequence: int = 0) -> None:
        """Bring back what `save` returned, as the content of `sequence`."""
        if lib.llama_state_seq_set_data(self.pointer, state, len(state), sequence) == 0:
            raise EngineError("llama.cpp could not restore the filled context")

    def logits(self) -> list[float]:
        """Return the logits of the last token processed, one per entry of the vocabulary."""
        pointer = lib.llama_get_logits_ith(self.pointer, -1)
        if not pointer:
            raise EngineError("llama.cpp gave no logits for the last token")
        return list(pointer[: self.n_vocab])

    def close(self) -> None:
        """Free the context's memory."""
        lib.llama_free(self.pointer)
        if self._threadpool is not None:
            self._threadpool.close()


def _batch(entries: Sequence[Entry]) -> tuple[Any, Any]:
    """Return a `llama_batch` of `entries` and the arrays that it points into."""
    n = len(entries)
    token = (lib.llama_token * n)(*(entry.token for entry in entries))
    position = (lib.llama_pos * n)(*(entry.position for entry in entries))
    count = (ctypes.c_int32 * n)(*([1] * n))
    ids = [(lib.llama_seq_id * 1)(entry.sequence) for entry in entries]
    pointers = (ctypes.POINTER(lib.llama_seq_id) * n)(
        *(ctypes.cast(one, ctypes.POINTER(lib.llama_seq_id)) for one in ids)
    )
    wanted = (ctypes.c_int8 * n)(*(entry.wanted for entry in entries))
    batch = lib.llama_batch(n_tokens=n, token=token, pos=position, n_seq_id=count, seq_id=pointers, logits=wanted)
    return batch, (token, position, count, ids, pointers, wanted)


def _check_pair(pointer: Any, n_ctx: int, n_parallel: int, n_threads: int) -> None:
    """Refuse a binding whose structures are not the library's: values would land in other fields without an error."""
    told = {
        "n_seq_max": (lib.llama_n_seq_max(pointer), n_parallel),
        "n_threads": (lib.llama_n_threads(pointer), n_threads),
    }
    for name, (found, asked) in told.items():
        if found != asked:
            raise EngineError(mismatch(f"{name} was set to {asked} and is {found}"))
    if lib.llama_n_ctx(pointer) < n_ctx:
        raise EngineError(mismatch(f"n_ctx was set to {n_ctx} and is {lib.llama_n_ctx(pointer)}"))


def _forget_peak() -> None:
    """Let the kernel count the peak of resident memory anew from here."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
