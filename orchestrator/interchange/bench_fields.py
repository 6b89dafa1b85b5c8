"""The fields of llama-bench's rows over the ages: how each is written, and what it is called in our terms (pure)."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime

from orchestrator.interchange.found import RefusedError
from orchestrator.interchange.llama_bench_options import FLASH, plain_shares
from schema.sweep import MMAP

Cells = Mapping[str, str]
"""A row as written: field -> text; a field without a value is left out."""

LARGEST = 2**63 - 1
LARGEST_RATE = 1e12
MAX_CHARACTERS = 4000

_INTEGER = re.compile(r"(-?[0-9]{1,19})(?:\.0{1,6})?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,25}(?:\.[0-9]{1,25})?(?:[eE][+-]?[0-9]{1,3})?")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+\.[0-9]{1,25}")
_NOT_FINITE = re.compile(r"[+-]?(?:nan(?:\([a-z0-9]*\))?|inf(?:inity)?|1\.#[A-Z0-9]+)", re.IGNORECASE)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_CONTROL = re.compile("[\0-\x1f\x7f\ud800-\udfff]")
_SWITCH = {"0": "off", "1": "on", "false": "off", "true": "on"}


def integer(text: str) -> int:
    """Return a whole number; RefusedError where `text` is none."""
    match = _INTEGER.fullmatch(text)
    if match is None or abs(int(match[1])) > LARGEST:
        raise RefusedError(f"{text!r:.60} is not a whole number")
    return int(match[1])


def count(text: str) -> int:
    """Return a whole number that is not negative."""
    number = integer(text)
    if number < 0:
        raise RefusedError(f"{text!r:.60} is negative")
    return number


def number(text: str) -> float:
    """Return a number; NaN or infinity where llama-bench wrote so; RefusedError for a decimal comma and the like."""
    if _NOT_FINITE.fullmatch(text):
        return math.inf if "inf" in text.lower() else math.nan
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        raise RefusedError(f"{text!r:.60} is not a number as llama-bench writes it")
    return float(text)


def _words(pattern: str, meaning: str) -> Callable[[str], str]:
    known = re.compile(pattern)

    def read(text: str) -> str:
        if not known.fullmatch(text):
            raise RefusedError(f"{text!r:.60} is not {meaning}")
        return text

    return read


def free_text(text: str) -> str:
    """Return a text; one with a quotation mark at an end has lost the other on its way."""
    if text.strip("\"'`") != text or text.endswith("\\"):
        raise RefusedError(f"{text!r:.60} has a stray quotation mark")
    return text


def _name(text: str) -> str:
    """Return a name; one that is a number alone comes from another column."""
    if _NUMBER.fullmatch(text) or text in ("true", "false"):
        raise RefusedError(f"{text!r:.60} is no name")
    return free_text(text)


def _one_of(known: Mapping[str, str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in known:
            raise RefusedError(f"{text!r:.60} is not one of {', '.join(known)}")
        return known[text.lower()]

    return read


def _shares(text: str) -> str:
    """Return the shares of devices as a sweep file has them: `0.00` is `0`, `5.00/5.00` is `5/5`."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?([/;][0-9]{1,9}(\.[0-9]{1,6})?)*", text):
        raise RefusedError(f"{text!r:.60} is no split of tensors such as 3.00/1.00")
    return plain_shares(re.split("[/;]", text))


def _overrides(text: str) -> str:
    if text != "none" and "=" not in text:
        raise RefusedError(f"{text!r:.60} is no override such as PATTERN=CPU")
    return free_text(text)


def _moment(text: str) -> str:
    """Return a time in UTC that there is."""
    try:
        there_is = _TIME.fullmatch(text) and datetime.fromisoformat(text)
    except ValueError:
        there_is = None
    if not there_is:
        raise RefusedError(f"{text!r:.60} is not a time in UTC such as 2026-01-02T03:04:05Z")
    return text


def _layers(text: str) -> int | str:
    """Return the number of layers; -1 is llama-bench's default, all of them."""
    layers = integer(text)
    return "all" if layers < 0 else layers


_switch = _one_of(_SWITCH)
_cache_type = _words(r"[a-z]+[0-9][a-z0-9_]{0,20}", "a type of a cache such as f16 or q8_0")
_backends = _words(r"[A-Za-z][A-Za-z0-9 ,+._/()-]{0,200}", "a list of back ends such as CUDA,RPC")
_word = _words(r"[a-z][a-z0-9+_-]{0,30}", "a word")

SETTINGS: dict[str, Callable[[str], int | str]] = {
    "n_batch": count,
    "n_ubatch": count,
    "n_threads": count,
    "type_k": _cache_type,
    "type_v": _cache_type,
    "flash_attn": _one_of(FLASH),
    "n_gpu_layers": _layers,
    "n_cpu_moe": count,
    "split_mode": _word,
    "main_gpu": integer,
    "tensor_split": _shares,
    "tensor_buft_overrides": _overrides,
    "devices": _words(r"[A-Za-z0-9][A-Za-z0-9 _.:/,()-]{0,500}", "a list of devices such as CUDA0/CUDA1"),
    "no_kv_offload": _switch,
    "no_op_offload": _switch,
    "no_host": _switch,
    "embeddings": _switch,
    "repack": _switch,
    "load_mode": _word,
    "lazy_mode": _word,
    "cpu_mask": _words(r"(0x)?[0-9a-fA-F]{1,128}", "a mask of CPUs such as 0xff"),
    "cpu_strict": _switch,
    "poll": count,
}
"""Field that is also a setting of ours -> its value in our terms; raises RefusedError."""

OLD_BACKENDS = {
    "cuda": "CUDA",
    "opencl": "OpenCL",
    "vulkan": "Vulkan",
    "kompute": "Kompute",
    "metal": "Metal",
    "sycl": "SYCL",
    "rpc": "RPC",
    "gpu_blas": "GPU BLAS",
    "blas": "BLAS",
}
"""The switches that older versions had for `backends`, in the order in which they named the one in use."""

FACTS: dict[str, Callable[[str], int | float | str]] = {
    "build_commit": free_text,
    "build_number": integer,
    "cpu_info": _name,
    "gpu_info": _name,
    "backends": _backends,
    "model_filename": free_text,
    "model_type": _name,
    "model_size": count,
    "model_n_params": count,
    "n_prompt": count,
    "n_gen": count,
    "n_depth": count,
    "test_time": _moment,
    "avg_ns": count,
    "stddev_ns": count,
    "avg_ts": number,
    "stddev_ts": number,
}
"""Field that is no setting -> its value."""

OLD_SWITCHES = ("use_mmap", "use_direct_io", "f16_kv", "mul_mat_q", "low_vram", *OLD_BACKENDS)
SINCE_DEPTHS = ("no_op_offload", "n_cpu_moe", "devices", "load_mode", "lazy_mode", "no_host", "fit_target")
"""Fields that came after `n_depth`: a row that has one of them, but no depth, has lost it."""

KNOWN = frozenset({*SETTINGS, *FACTS, *OLD_SWITCHES, "fit_target", "fit_min_ctx", "samples_ns", "samples_ts"})
"""Every field of llama-bench's rows, of any age."""
REQUIRED = ("n_prompt", "n_gen", "avg_ts")
"""Fields that every age has and without which nothing is known."""


def settings_of(cells: Cells) -> dict[str, int | str]:
    """Return the settings that the row tells, in our names and values; RefusedError names the field that is wrong."""
    found = {name: read_field(name, read, cells[name]) for name, read in SETTINGS.items() if name in cells}
    old = {name: str(read_field(name, _switch, cells[name])) for name in OLD_SWITCHES if name in cells}
    if "load_mode" not in found and ("use_mmap" in old or "use_direct_io" in old):
        mapped = MMAP.get(old.get("use_mmap", ""))
        mode = "dio" if old.get("use_direct_io") == "on" else mapped
        found |= {"load_mode": mode} if mode else {}
    if "f16_kv" in old:
        width = "f16" if old["f16_kv"] == "on" else "f32"
        found.setdefault("type_k", width)
        found.setdefault("type_v", width)
    return found


def backends_of(cells: Cells) -> str | None:
    """Return the back ends by name: as given, or from the switches of older versions; None where neither is there."""
    if "backends" in cells:
        return str(read_field("backends", _backends, cells["backends"]))
    switches = [name for name in OLD_BACKENDS if name in cells]
    used = [name for name in switches if read_field(name, _switch, cells[name]) == "on"]
    if not used:
        return "CPU" if switches else None
    if used[0] == "cuda" and re.search(r"\b(AMD|Radeon)\b", cells.get("gpu_info", "")):
        return "ROCm"  # built for AMD's GPUs, the switch was the same and the name printed was this
    return OLD_BACKENDS[used[0]]


def read_field(name: str, read: Callable[[str], int | float | str], text: str) -> int | str:
    """Return what `text` says for the field `name`; RefusedError names the field with the reason."""
    if len(text) > MAX_CHARACTERS or _CONTROL.search(text):
        fault = "is too long" if len(text) > MAX_CHARACTERS else "has control characters"
        raise RefusedError(f"{name}: {text!r:.60} {fault}")
    try:
        return read(text)  # type: ignore[return-value]
    except RefusedError as error:
        raise RefusedError(f"{name}: {error}", error.severity) from None
