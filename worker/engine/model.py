"""Start llama.cpp in this process and load a model's weights."""

import ctypes
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib

from schema.record import Effective
from schema.settings import Settings
from worker import backend
from worker.engine.params import mismatch, set_field
from worker.llama_log import LogText
from worker.seam import EngineError

LOAD_MODE = {"auto": -1, "none": 0, "mmap": 1, "mlock": 2, "mmap+mlock": 3, "dio": 4}
LAZY_MODE = {"off": 0, "auto": 1, "on": 2}
SPLIT_MODE = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
NUMA = {"disabled": 0, "distribute": 1, "isolate": 2, "numactl": 3}
LIBRARIES = Path(lib.__file__).parent / "lib"
TEXT = ("What a person reads at the screen comes one token after another; 12,345 of them fill a book. " * 200)[:16_384]
TOKENIZE_SECONDS = 0.1


class Log(LogText):
    """llama.cpp's log: every line goes to this process's stderr at once, and can be searched."""

    def __init__(self) -> None:
        super().__init__()
        self._callback = lib.llama_log_callback(self._write)
        lib.llama_log_set(self._callback, ctypes.c_void_p(0))

    def _write(self, level: int, text: bytes, _user_data: object) -> None:
        line = text.decode("utf-8", "replace")
        if self.add(level, line):
            sys.stderr.write(line)


def start() -> Log:
    """Start llama.cpp in this process, with its log in our hands; EngineError where the binding is not its own."""
    log = Log()
    lib.llama_backend_init()
    backend.load_back_ends(lib._lib, LIBRARIES)
    _check_defaults()
    return log


def _check_defaults() -> None:
    """Compare llama.cpp's own defaults, read through the binding's fields, with what llama.h says they are."""
    context, model = lib.llama_context_default_params(), lib.llama_model_default_params()
    expected = {
        **{"n_batch": 2048, "n_ubatch": 512, "n_seq_max": 1, "n_threads": 4, "n_threads_batch": 4},
        **{"rope_scaling_type": -1, "pooling_type": -1, "attention_type": -1, "flash_attn_type": -1},
        **{"rope_freq_base": 0.0, "yarn_ext_factor": -1.0, "type_k": 1, "type_v": 1, "offload_kqv": True},
    }
    for params, values in ((context, expected), (model, {"split_mode": 1, "main_gpu": 0, "vocab_only": False})):
        for name, value in values.items():
            found = getattr(params, name, value)
            if found != value:
                raise EngineError(mismatch(f"the default of {name} reads as {found}, not {value}"))


class Model:
    """Weights loaded once per process; contexts are made from it."""

    def __init__(self, path: Path, settings: Settings, log: Log) -> None:
        """Load `path`; raises EngineError with llama.cpp's own words when it cannot."""
        self.path, self.log = path, log
        log.clear()
        backend.set_priority(settings.prio)
        if settings.numa != "disabled":
            lib.llama_numa_init(NUMA[settings.numa])
        self._params = lib.llama_model_default_params()
        self._keep = _set_model_params(self._params, settings)
        self.pointer = lib.llama_model_load_from_file(str(path).encode(), self._params)
        if not self.pointer:
            raise EngineError(f"llama.cpp could not load {path.name}: {log.last_error()}")
        self.load_in_effect = _load_in_effect(log, path, settings)
        self.weights = log.buffers("model")
        self.notes = log.notes()
        self.vocab = lib.llama_model_get_vocab(self.pointer)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self.vocab)
        self.bos: int | None = lib.llama_vocab_bos(self.vocab) if lib.llama_vocab_get_add_bos(self.vocab) else None
        self.tokenize_ts = self._tokenize_rate()

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

    def _tokenize_rate(self) -> float | None:
        """Return tokens per second of tokenizing a fixed text of 16 KiB; None where the model has no tokenizer."""
        if lib.llama_vocab_type(self.vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
            return None
        text = TEXT.encode()
        tokens = (lib.llama_token * (len(text) + 8))()
        n_tokens, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < TOKENIZE_SECONDS:
            n = lib.llama_tokenize(self.vocab, text, len(text), tokens, len(tokens), False, False)
            if n <= 0:
                return None
            n_tokens += n
        return n_tokens / (time.perf_counter() - begun)


def _set_model_params(params: Any, settings: Settings) -> list[Any]:
    """Set what is asked; returns what must live as long as `params`."""
    named = without_gpus(settings)
    devices = None if named == "auto" else backend.device_list(lib._lib, named)
    overrides = backend.overrides(lib._lib, settings.tensor_buft_overrides, settings.n_cpu_moe)
    shares = [float(share) for share in settings.tensor_split.split("/")]
    split = (ctypes.c_float * max(lib.llama_max_devices(), len(shares)))(*shares) if any(shares) else None
    params.n_gpu_layers = -1 if settings.n_gpu_layers == "all" else int(settings.n_gpu_layers)
    params.main_gpu = settings.main_gpu
    set_field(params, "split_mode", SPLIT_MODE[settings.split_mode])
    if split is not None:
        params.tensor_split = ctypes.cast(split, ctypes.POINTER(ctypes.c_float))
    if devices is not None:
        set_field(params, "devices", ctypes.cast(devices, ctypes.c_void_p))
    if overrides is not None:
        set_field(params, "tensor_buft_overrides", ctypes.cast(overrides, ctypes.c_void_p))
    _set_load_mode(params, settings.load_mode)
    set_field(params, "lazy_mode", LAZY_MODE[settings.lazy_mode], settings.lazy_mode != "auto")
    set_field(params, "use_extra_bufts", settings.repack == "on", settings.repack != "on")
    set_field(params, "no_host", settings.no_host == "on", settings.no_host == "on")
    return [devices, overrides, split]


def without_gpus(settings: Settings) -> str:
    """Return the devices to name: none for a job of the CPU, since llama.cpp would give a GPU some of its work."""
    return "none" if settings.devices == "auto" and settings.n_gpu_layers == 0 else settings.devices


def _set_load_mode(params: Any, mode: str) -> None:
    """Set how the file is read, also in releases that have two or three switches for it."""
    if hasattr(params, "load_mode"):
        params.load_mode = LOAD_MODE[mode]
    elif mode != "auto":
        set_field(params, "use_mmap", "mmap" in mode)
        set_field(params, "use_mlock", "mlock" in mode)
        set_field(params, "use_direct_io", mode == "dio", mode == "dio")


def _load_in_effect(log: Log, path: Path, settings: Settings) -> dict[str, Effective]:
    layers = log.layers_offloaded()
    nothing_to_offload_to = not backend.devices(lib._lib)[1]
    used, named = log.devices_used(), log.devices_named()
    repacked = any("REPACK" in name or "AMX" in name for name in log.buffers("model"))
    overridden = sum(log.overridden.values())
    return {
        "n_gpu_layers": Effective(value=layers, source="log")
        if layers is not None
        else Effective(value=0 if nothing_to_offload_to else None, source="devices"),
        "load_mode": _read_in_effect(log, path),
        "devices": Effective(value="/".join(used) or "none", source="log"),
        **({"device_names": Effective(value="; ".join(named), source="log")} if named else {}),
        "repack": Effective(value="on" if repacked else "off", source="buffers"),
        "tensors_overridden": Effective(value=overridden, source="log"),
        "prio": Effective(value=_priority(), source="process"),
        **_moved(settings, overridden),
    }


def _moved(settings: Settings, overridden: int) -> dict[str, Effective]:
    """Overrides count as in effect when llama.cpp says that it moved a tensor, as not in effect when it moved none."""
    if settings.tensor_buft_overrides == "none" or settings.n_cpu_moe:
        return {}
    value = settings.tensor_buft_overrides if overridden else "none"
    return {"tensor_buft_overrides": Effective(value=value, source="log")}


def _read_in_effect(log: Log, path: Path) -> Effective:
    """Say how the file was read: what the process has mapped and locked, else what the log says."""
    maps, status = Path("/proc/self/maps"), Path("/proc/self/status")
    if not maps.exists():
        return Effective(value=log.load_mode(), source="log")
    mapped = str(path.resolve()) in maps.read_text(errors="replace")
    locked = int((re.search(r"VmLck:\s+(\d+)", status.read_text()) or [0, 0])[1]) > 0 and not log.mlock_refused()
    if not mapped and log.load_mode() == "dio":
        return Effective(value="dio", source="log")
    return Effective(value="+".join(["mmap"] * mapped + ["mlock"] * locked) or "none", source="maps")


def _priority() -> str | None:
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    return next((name for name, value in backend.NICENESS.items() if value == niceness), None)
