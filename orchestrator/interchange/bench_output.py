"""A stored result as llama-bench itself would have written it: its fields, their order, types and values (pure).

Settings are those asked for, as llama-bench prints them, not those in effect. What is not known has the value that
llama-bench has for it, never NULL: its compare script joins rows by equality.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

Value = int | float | str
Bench = dict[str, Value]
"""One row of llama-bench's, by its names."""

FIELDS: Final[Mapping[str, type]] = {
    "build_commit": str,
    "build_number": int,
    "cpu_info": str,
    "gpu_info": str,
    "backends": str,
    "model_filename": str,
    "model_type": str,
    "model_size": int,
    "model_n_params": int,
    "n_batch": int,
    "n_ubatch": int,
    "n_threads": int,
    "cpu_mask": str,
    "cpu_strict": int,
    "poll": int,
    "type_k": str,
    "type_v": str,
    "n_gpu_layers": int,
    "n_cpu_moe": int,
    "split_mode": str,
    "main_gpu": int,
    "no_kv_offload": int,
    "flash_attn": int,
    "devices": str,
    "tensor_split": str,
    "tensor_buft_overrides": str,
    "load_mode": str,
    "lazy_mode": str,
    "embeddings": int,
    "no_op_offload": int,
    "no_host": int,
    "repack": int,
    "fit_target": int,
    "fit_min_ctx": int,
    "n_prompt": int,
    "n_gen": int,
    "n_depth": int,
    "test_time": str,
    "avg_ns": int,
    "stddev_ns": int,
    "avg_ts": float,
    "stddev_ts": float,
}
"""llama-bench's fields in its order (llama-bench.cpp, test::get_fields), with the type of each (get_field_type)."""

DEFAULTS: Final[Bench] = {
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 0,
    "cpu_mask": "0x0",
    "cpu_strict": 0,
    "poll": 50,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": -1,
    "n_cpu_moe": 0,
    "split_mode": "layer",
    "main_gpu": 0,
    "no_kv_offload": 0,
    "flash_attn": -1,
    "devices": "auto",
    "tensor_split": "0.00",
    "tensor_buft_overrides": "none",
    "load_mode": "auto",
    "lazy_mode": "auto",
    "embeddings": 0,
    "no_op_offload": 0,
    "no_host": 0,
    "repack": 1,
    "fit_target": 0,
    "fit_min_ctx": 0,
}
"""llama-bench's defaults (cmd_params_defaults); it has no fixed one for n_threads."""

UNKNOWN_BUILD = "unknown"
_WORDS = {"on": 1, "off": 0, "true": 1, "false": 0, "auto": -1, "all": -1}
_WHOLE = re.compile(r"-?\d{1,18}")


def bench_row(row: Mapping[str, Any]) -> Bench | None:
    """Return a row of the view `results` as llama-bench would write it; None where it has no such test."""
    if (row.get("n_parallel") or 1) > 1 or row.get("n_verify"):
        return None
    n_tokens = row["n_prompt"] + row["n_gen"]
    return {
        "build_commit": row.get("build_commit") or UNKNOWN_BUILD,
        "build_number": row.get("build_number") or 0,
        "cpu_info": row.get("cpu_info") or "",
        "gpu_info": row.get("gpu_info") or "",
        "backends": back_ends(row.get("backends")),
        "model_filename": row.get("model_filename") or row.get("model") or "",
        "model_type": row.get("model_type") or row.get("model") or "",
        "model_size": row.get("model_size") or 0,
        "model_n_params": row.get("model_n_params") or 0,
        **{name: _setting(row, name) for name in DEFAULTS},
        "n_prompt": row["n_prompt"],
        "n_gen": row["n_gen"],
        "n_depth": row.get("n_depth") or 0,
        "test_time": _seconds(row.get("test_time")),
        "avg_ns": row.get("avg_ns") or round(1e9 * n_tokens / row["avg_ts"]),
        "stddev_ns": row.get("stddev_ns") or 0,
        "avg_ts": float(row["avg_ts"]),
        "stddev_ts": float(row.get("stddev_ts") or 0),
    }


def test_name(row: Mapping[str, Any]) -> str:
    """Return the test as llama-bench's table names it, such as `pp512+tg128 @ d4096`."""
    parts = [f"pp{row['n_prompt']}"] * bool(row["n_prompt"]) + [f"tg{row['n_gen']}"] * bool(row["n_gen"])
    return "+".join(parts) + (f" @ d{row['n_depth']}" if row["n_depth"] else "")


def back_ends(names: str | None) -> str:
    """Return back ends as llama-bench joins them: the CPU is one only where there is no other."""
    others = [name for name in (names or "").split(",") if name and name != "CPU"]
    return ",".join(others) or "CPU"


def shortened(commits: list[str]) -> dict[str, str]:
    """Return for each commit what the compare script may call it: cut or padded to one length.

    Where lengths differ, the script cuts all to the shortest, and then finds none by its longer name. They are left
    alone where cutting would make one of two builds.
    """
    known = sorted({commit for commit in commits if commit != UNKNOWN_BUILD})
    if not known:
        return {}
    length = min(map(len, known))
    cut = {commit: commit[:length] for commit in known}
    if any(a != b and not (a.startswith(b) or b.startswith(a)) and cut[a] == cut[b] for a in known for b in known):
        return {}
    return cut | {UNKNOWN_BUILD: UNKNOWN_BUILD.ljust(length, "-")[:length]}


def _setting(row: Mapping[str, Any], name: str) -> Value:
    """Return a setting as asked for; what is in effect where a symbol was asked for, or nothing is known of it."""
    default, kind = DEFAULTS[name], FIELDS[name]
    for value in (row.get(f"asked_{name}"), row.get(name)):
        if value is None or (name == "n_threads" and not _WHOLE.fullmatch(str(value))):
            continue
        if name == "tensor_split":
            return _shares(str(value))
        if kind is str:
            return str(value)
        number = _number(value)
        if number is not None:
            return number
    return default


def _number(value: Any) -> int | None:
    if isinstance(value, int):
        return int(value)
    text = str(value)
    return _WORDS.get(text, int(text) if _WHOLE.fullmatch(text) else None)


def _shares(text: str) -> str:
    """Return a tensor_split as llama-bench prints it: two decimals, up to the last share that is not 0."""
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        return text
    while len(shares) > 1 and not shares[-1]:
        shares.pop()
    return "/".join(f"{share:.2f}" for share in shares)


def _seconds(time: Any) -> str:
    """Return a time as llama-bench writes it: UTC, without fractions."""
    return f"{str(time)[:19]}Z" if time else ""
