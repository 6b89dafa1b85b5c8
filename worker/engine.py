"""The seam to llama.cpp, through llama-cpp-python's low-level functions. Nothing else imports llama_cpp."""

import ctypes
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from schema.host import Build
from schema.job import Settings
from schema.record import Effective
from worker.measure import Batches, EngineError

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}
LOAD_MODE = {"auto": -1, "off": 0, "on": 1}
GGML_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30,
}  # fmt: skip
"""Values of `enum ggml_type` for the types that a KV cache may have."""

GGML_LOG_LEVEL_DEBUG = 1

DECODE_ERRORS = {
    1: "no room left in the context for the batch",
    2: "aborted inside llama.cpp",
    -1: "llama.cpp refused the batch as invalid",
}


class Log:
    """llama.cpp's log: every line goes to this process's stderr at once; the last ones can be searched."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: bytes, _user_data: object) -> None:
        if level == GGML_LOG_LEVEL_DEBUG:
            return
        line = text.decode("utf-8", "replace")
        sys.stderr.write(line)
        self.lines.append(line)

    def clear(self) -> None:
        """Forget what was written so far."""
        self.lines.clear()

    def search(self, pattern: str) -> re.Match[str] | None:
        """Return the last match of `pattern` in what was written since `clear`."""
        matches = list(re.finditer(pattern, "".join(self.lines)))
        return matches[-1] if matches else None


class Model:
    """Weights loaded once per process; contexts are made from it."""

    def __init__(self, path: Path, settings: Settings, log: Log) -> None:
        """Load `path`; raises EngineError with llama.cpp's own words when it cannot."""
        params = lib.llama_model_default_params()
        params.n_gpu_layers = -1 if settings.n_gpu_layers == "all" else int(settings.n_gpu_layers)
        params.load_mode = LOAD_MODE[settings.mmap]
        self.path = path
        self.log = log
        log.clear()
        self.pointer = lib.llama_model_load_from_file(str(path).encode(), params)
        if not self.pointer:
            raise EngineError(f"llama.cpp could not load {path.name}: {_last_error(log)}")
        self.load_in_effect = {"n_gpu_layers": self._layers_on_gpu(), "mmap": self._mapped()}
        vocab = lib.llama_model_get_vocab(self.pointer)
        self.n_vocab: int = lib.llama_vocab_n_tokens(vocab)
        self.bos: int | None = lib.llama_vocab_bos(vocab) if lib.llama_vocab_get_add_bos(vocab) else None

    def _layers_on_gpu(self) -> Effective:
        found = self.log.search(r"offloaded (\d+)/\d+ layers to GPU")
        if found:
            return Effective(value=int(found[1]), source="log")
        return Effective(value=None if devices()[1] else 0, source="devices")

    def _mapped(self) -> Effective:
        maps = Path("/proc/self/maps")
        if maps.exists():
            inside = str(self.path.resolve()) in maps.read_text(errors="replace")
            return Effective(value="on" if inside else "off", source="maps")
        found = self.log.search(r"load_mode = ([\w+]+)")
        return Effective(value=("on" if "mmap" in found[1] else "off") if found else None, source="log")

    def facts(self) -> dict[str, Any]:
        """Return what llama.cpp says of the file, in llama-bench's names."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.pointer, buffer, 256)
        architecture = ctypes.create_string_buffer(64)
        lib.llama_model_meta_val_str(self.pointer, b"general.architecture", architecture, 64)
        return {
            "model_type": buffer.value.decode("utf-8", "replace"),
            "model_size": lib.llama_model_size(self.pointer),
            "model_n_params": lib.llama_model_n_params(self.pointer),
            "architecture": architecture.value.decode("utf-8", "replace") or None,
            "n_ctx_train": lib.llama_model_n_ctx_train(self.pointer),
        }


class Context:
    """One context of a model, fresh for each job: the `Engine` that `worker.measure` times."""

    def __init__(self, model: Model, settings: Settings, n_threads: int, n_ctx: int) -> None:
        """Make a context of `n_ctx` tokens; raises EngineError with llama.cpp's own words when it cannot."""
        params = lib.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = settings.n_batch
        params.n_ubatch = settings.n_ubatch
        params.n_threads = params.n_threads_batch = n_threads
        params.type_k = GGML_TYPES[settings.type_k]
        params.type_v = GGML_TYPES[settings.type_v]
        params.flash_attn_type = FLASH_ATTN[settings.flash_attn]
        params.swa_full = False
        self.model = model
        self._asked = settings
        model.log.clear()
        self.pointer = lib.llama_init_from_model(model.pointer, params)
        if not self.pointer:
            raise EngineError(f"llama.cpp could not make a context of {n_ctx} tokens: {_last_error(model.log)}")
        self._memory = lib.llama_get_memory(self.pointer)
        self.n_batch: int = lib.llama_n_batch(self.pointer)
        self.n_vocab, self.bos = model.n_vocab, model.bos
        self.settings_in_effect = self._in_effect()

    def _in_effect(self) -> dict[str, Effective]:
        def getter(function: Callable[[Any], int]) -> Effective:
            return Effective(value=function(self.pointer), source="getter")

        cache = self.model.log.search(r"K \((\w+)\):.*V \((\w+)\):")
        return {
            "n_ctx": getter(lib.llama_n_ctx),
            "n_batch": getter(lib.llama_n_batch),
            "n_ubatch": getter(lib.llama_n_ubatch),
            "n_threads": getter(lib.llama_n_threads),
            "n_threads_batch": getter(lib.llama_n_threads_batch),
            "type_k": Effective(value=cache[1] if cache else None, source="log"),
            "type_v": Effective(value=cache[2] if cache else None, source="log"),
            "flash_attn": self._flash_attn(),
        }

    def _flash_attn(self) -> Effective:
        """Read the switch from the log: the last line that settles it wins."""
        log = self.model.log
        if log.search(r"forcing off|Flash Attention not supported, set to disabled"):
            return Effective(value="off", source="log")
        if log.search(r"enabling flash_attn|Flash Attention enabled"):
            return Effective(value="on", source="log")
        found = log.search(r"flash_attn\s+= (\w+)")
        value = {"enabled": "on", "disabled": "off"}.get(found[1]) if found else None
        return Effective(value=value, source="log")

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

    def process(self, batch: Any) -> None:
        """Submit one batch; raises EngineError when llama.cpp does not process it."""
        code = lib.llama_decode(self.pointer, batch)
        if code != 0:
            reason = DECODE_ERRORS.get(code, "a fatal error inside llama.cpp")
            raise EngineError(f"llama_decode returned {code}: {reason}")

    def synchronize(self) -> None:
        """Wait until everything submitted has been computed."""
        lib.llama_synchronize(self.pointer)

    def clear(self) -> None:
        """Empty the context's memory (KV cache)."""
        lib.llama_memory_clear(self._memory, False)

    def n_past(self) -> int:
        """Return how many tokens the context's memory holds."""
        return int(lib.llama_memory_seq_pos_max(self._memory, 0)) + 1

    def save(self) -> Any:
        """Return the memory's content, so that `restore` brings it back without computing it again."""
        size = lib.llama_state_seq_get_size(self.pointer, 0)
        state = (ctypes.c_uint8 * size)()
        if lib.llama_state_seq_get_data(self.pointer, state, size, 0) == 0:
            raise EngineError("llama.cpp could not save the filled context")
        return state

    def restore(self, state: Any) -> None:
        """Bring back what `save` returned."""
        if lib.llama_state_seq_set_data(self.pointer, state, len(state), 0) == 0:
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


def devices() -> tuple[list[str], list[str]]:
    """Return the names of all devices that llama.cpp sees, and of those that are not the CPU."""
    raw = lib._lib
    raw.ggml_backend_dev_count.restype = ctypes.c_size_t
    raw.ggml_backend_dev_get.restype = ctypes.c_void_p
    raw.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description"):
        getattr(raw, name).restype = ctypes.c_char_p
        getattr(raw, name).argtypes = [ctypes.c_void_p]
    raw.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    every, offload = [], []
    for index in range(raw.ggml_backend_dev_count()):
        device = raw.ggml_backend_dev_get(index)
        name = raw.ggml_backend_dev_name(device).decode("utf-8", "replace")
        text = f"{name} ({raw.ggml_backend_dev_description(device).decode('utf-8', 'replace')})"
        every.append(text)
        if raw.ggml_backend_dev_type(device) in (1, 2):  # GPU, integrated GPU
            offload.append(text)
    return every, offload


def library_files() -> list[str]:
    """Return the paths of llama.cpp's shared libraries that this interpreter loads."""
    return sorted(str(path) for path in Path(lib.__file__).parent.joinpath("lib").iterdir() if path.is_file())


def build_facts() -> Build:
    """Return llama.cpp as this interpreter would run it."""
    from importlib.metadata import version

    raw = lib._lib
    raw.ggml_commit.restype = ctypes.c_char_p
    commit = raw.ggml_commit().decode("ascii", "replace")
    every, _ = devices()
    made = how_it_was_made(Path(sys.prefix) / "engine.json")
    return Build(
        binding=f"llama-cpp-python {version('llama_cpp_python')}",
        llama_cpp_commit=None if commit in ("", "unknown") else commit,
        system_info=lib.llama_print_system_info().decode("utf-8", "replace").strip(" |\n"),
        cmake_args=made.get("cmake_args"),
        compiler=made.get("compiler"),
        backends=tuple(dict.fromkeys(re.sub(r"\d+$", "", text.split(" ")[0]) for text in every)),
        devices=tuple(every),
        gpu_offload=bool(lib.llama_supports_gpu_offload()),
    )


def how_it_was_made(stamp: Path) -> dict[str, str]:
    """Return CMake's options and the compiler from the note that our build leaves; nothing where it left none.

    Options that only say where a file is are left out: they differ between machines that are built alike.
    """
    try:
        note = json.loads(stamp.read_text())
        told = [flag for flag in note["cmake_args"] if flag.startswith(("-DGGML_", "-DLLAMA_"))]
        return {"cmake_args": " ".join(told), "compiler": str(note["compiler"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def start() -> Log:
    """Start llama.cpp in this process, with its log in our hands."""
    log = Log()
    lib.llama_backend_init()
    return log


def _last_error(log: Log) -> str:
    """Return the last lines of the log that say what went wrong, as one line."""
    telling = [line.strip() for line in log.lines if re.search(r"error|fail|unable|invalid|requires|not support", line)]
    return "; ".join(telling[-2:]) or "it gave no reason"
