"""ggml's devices, buffer types and thread pools, which llama-cpp-python does not wrap (stdlib only).

Every function takes the loaded library; signatures are those of ggml-backend.h and ggml-cpu.h.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schema.host import Device
from schema.settings import PRIORITIES
from worker.fingerprint import pci
from worker.seam import EngineError

CPU, GPU, IGPU = 0, 1, 2
"""Values of `enum ggml_backend_dev_type`."""

NICENESS = {"low": 5, "normal": 0, "medium": -5, "high": -10, "realtime": -20}
"""What llama-bench gives its process for each priority (`set_process_priority` in common.cpp)."""

MAX_CPUS = 512
EXPERTS = r"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""What llama-bench keeps off the device for each of the first `n_cpu_moe` layers (`llm_ffn_block_regex`)."""


class Properties(ctypes.Structure):
    """`struct ggml_backend_dev_props`, its capabilities as bytes; before `device_id` came these stood in its place."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_void_p),
        ("rest", ctypes.c_byte * 64),
    )


class Override(ctypes.Structure):
    """`struct llama_model_tensor_buft_override`."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


class ThreadpoolParams(ctypes.Structure):
    """`struct ggml_threadpool_params`."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * MAX_CPUS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


def declare(raw: Any) -> None:
    """Give the functions that this module calls their signatures, as far as the library has them."""
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "ggml_backend_dev_count": (ctypes.c_size_t, []),
        "ggml_backend_dev_get": (pointer, [ctypes.c_size_t]),
        "ggml_backend_dev_name": (text, [pointer]),
        "ggml_backend_dev_description": (text, [pointer]),
        "ggml_backend_dev_type": (ctypes.c_int, [pointer]),
        "ggml_backend_dev_memory": (None, [pointer, pointer, pointer]),
        "ggml_backend_dev_get_props": (None, [pointer, pointer]),
        "ggml_backend_dev_by_name": (pointer, [text]),
        "ggml_backend_dev_by_type": (pointer, [ctypes.c_int]),
        "ggml_backend_dev_buffer_type": (pointer, [pointer]),
        "ggml_backend_dev_backend_reg": (pointer, [pointer]),
        "ggml_backend_buft_name": (text, [pointer]),
        "ggml_backend_reg_by_name": (pointer, [text]),
        "ggml_backend_reg_get_proc_address": (pointer, [pointer, text]),
        "ggml_backend_register": (None, [pointer]),
        "ggml_backend_load_all_from_path": (None, [text]),
        "ggml_commit": (text, []),
    }
    for name, (result, arguments) in signatures.items():
        if hasattr(raw, name):
            function = getattr(raw, name)
            function.restype, function.argtypes = result, arguments


def load_back_ends(raw: Any, directory: Path) -> None:
    """Load back ends that are files of their own (`GGML_BACKEND_DL`), and register the servers of `LLAMA_ARG_RPC`."""
    declare(raw)
    if raw.ggml_backend_dev_count() == 0 and hasattr(raw, "ggml_backend_load_all_from_path"):
        raw.ggml_backend_load_all_from_path(str(directory).encode())
    servers = os.environ.get("LLAMA_ARG_RPC", "")
    if servers:
        _register_servers(raw, servers.split(","))


def _register_servers(raw: Any, servers: Sequence[str]) -> None:
    registry = raw.ggml_backend_reg_by_name(b"RPC")
    address = registry and raw.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_rpc_add_server")
    if not address:
        raise EngineError("this build of llama.cpp has no RPC back end; LLAMA_ARG_RPC needs one built with GGML_RPC=ON")
    add_server = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(address)
    for server in servers:
        registered = add_server(server.encode())
        if not registered:
            raise EngineError(f"the RPC server {server} of LLAMA_ARG_RPC cannot be reached")
        raw.ggml_backend_register(registered)


def devices(raw: Any) -> tuple[list[str], list[str]]:
    """Return the names of all devices that llama.cpp sees, and of those that are not the CPU."""
    every, offload = [], []
    for index in range(raw.ggml_backend_dev_count()):
        device = raw.ggml_backend_dev_get(index)
        name = raw.ggml_backend_dev_name(device).decode("utf-8", "replace")
        text = f"{name} ({raw.ggml_backend_dev_description(device).decode('utf-8', 'replace')})"
        every.append(text)
        if raw.ggml_backend_dev_type(device) in (GPU, IGPU):
            offload.append(text)
    return every, offload


def offload_devices(raw: Any) -> tuple[Device, ...]:
    """Return the devices that are not the CPU, with the memory each says it has; a build for the CPU has none."""
    handles = [raw.ggml_backend_dev_get(index) for index in range(raw.ggml_backend_dev_count())]
    kinds = [(handle, raw.ggml_backend_dev_type(handle)) for handle in handles]
    return tuple(_device(raw, handle, kind) for handle, kind in kinds if kind in (GPU, IGPU))


def _device(raw: Any, handle: Any, kind: int) -> Device:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if hasattr(raw, "ggml_backend_dev_memory"):
        raw.ggml_backend_dev_memory(handle, ctypes.byref(free), ctypes.byref(total))
    return Device(
        name=raw.ggml_backend_dev_name(handle).decode("utf-8", "replace"),
        description=raw.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
        memory_bytes=total.value or None,
        bus_id=_bus_id(raw, handle, kind, total.value),
        unified=kind == IGPU,
    )


def _bus_id(raw: Any, handle: Any, kind: int, total: int) -> str | None:
    """Return the device's place on the PCI bus, where the library tells it and its structure is the one we know."""
    if not hasattr(raw, "ggml_backend_dev_get_props"):
        return None
    properties = Properties()
    raw.ggml_backend_dev_get_props(handle, ctypes.byref(properties))
    known = properties.name == raw.ggml_backend_dev_name(handle) and properties.memory_total == total
    if not known or properties.type != kind or not properties.device_id:
        return None
    text = ctypes.string_at(properties.device_id)[:64].decode("utf-8", "replace")
    return text if pci.PLACE.fullmatch(text) else None


def device_list(raw: Any, asked: str) -> Any:
    """Return the NULL-terminated array for `devices`, a `/`-joined list of names or `none`; EngineError for others."""
    names = [] if asked == "none" else asked.split("/")
    handles = [raw.ggml_backend_dev_by_name(name.encode()) for name in names]
    for name, handle in zip(names, handles, strict=True):
        if not handle:
            known = ", ".join(text.split(" ")[0] for text in devices(raw)[0])
            raise EngineError(f"there is no device {name}; this build of llama.cpp has {known}")
    return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)


def overrides(raw: Any, asked: str, n_cpu_moe: int) -> Any:
    """Return the array for `tensor_buft_overrides` with the experts of the first `n_cpu_moe` layers on the CPU."""
    pairs = [] if asked == "none" else [pair.rsplit("=", 1) for pair in asked.split(";")]
    pairs += [[EXPERTS.format(layer=layer), "CPU"] for layer in range(n_cpu_moe)]
    if not pairs:
        return None
    types = _buffer_types(raw)
    for _, name in pairs:
        if name not in types:
            raise EngineError(f"there is no buffer type {name}; this build of llama.cpp has {', '.join(types)}")
    entries = [Override(pattern.encode(), types[name]) for pattern, name in pairs]
    return (Override * (len(entries) + 1))(*entries, Override(None, None))


def _buffer_types(raw: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for index in range(raw.ggml_backend_dev_count()):
        kind = raw.ggml_backend_dev_buffer_type(raw.ggml_backend_dev_get(index))
        if kind:
            found.setdefault(raw.ggml_backend_buft_name(kind).decode("utf-8", "replace"), kind)
    return found


class Threadpool:
    """CPU threads that are placed, polled and preferred as asked, as llama-bench makes them."""

    def __init__(self, raw: Any, n_threads: int, cpu_mask: str, strict: bool, poll: int, prio: str) -> None:
        """Make the pool; raises EngineError for a mask that asks for CPUs this machine or library does not have."""
        registry = raw.ggml_backend_dev_backend_reg(raw.ggml_backend_dev_by_type(CPU))

        def function(name: str, result: Any, *arguments: Any) -> Any:
            address = raw.ggml_backend_reg_get_proc_address(registry, name.encode())
            if not address:
                raise EngineError(f"this build of llama.cpp lacks {name}: cpu_mask, cpu_strict, poll and prio need it")
            return ctypes.CFUNCTYPE(result, *arguments)(address)

        self._free = function("ggml_threadpool_free", None, ctypes.c_void_p)
        make = function("ggml_threadpool_new", ctypes.c_void_p, ctypes.POINTER(ThreadpoolParams))
        params = ThreadpoolParams(n_threads=n_threads, prio=PRIORITIES[prio], poll=poll, strict_cpu=strict)
        for cpu in _cpus(cpu_mask):
            params.cpumask[cpu] = True
        self.pointer = make(ctypes.byref(params))
        if not self.pointer:
            raise EngineError(f"llama.cpp could not make a pool of {n_threads} threads")

    def close(self) -> None:
        """End the threads; the context must be gone before."""
        self._free(self.pointer)


def _cpus(mask: str) -> list[int]:
    bits = int(mask, 16)
    cpus = [cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1]
    absent = [cpu for cpu in cpus if cpu >= MAX_CPUS or cpu not in os.sched_getaffinity(0)]
    if absent:
        raise EngineError(f"cpu_mask {mask} asks for CPU {absent[0]}, which this process may not use")
    return cpus


def set_priority(prio: str) -> None:
    """Give this process the niceness that llama-bench gives its own; EngineError where that is not allowed."""
    if prio == "normal":
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS[prio])
    except OSError as error:
        raise EngineError(f"prio {prio} is not allowed here: {error.strerror}") from error
