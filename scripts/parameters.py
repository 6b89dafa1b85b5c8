"""Writes docs/parameters.md: every parameter of llama-bench, how we set it, where it is seen in effect, what tests it.

python -m scripts.parameters
"""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from schema.settings import LOAD_SETTINGS, Settings
from worker.llama_bench import FLAGS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "parameters.md"
TESTS = ("test_engine.py", "test_measure.py", "test_builds.py", "test_host_settings.py", "test_sweep.py")
SEEN = {
    "n_batch": "`llama_n_batch`",
    "n_ubatch": "`llama_n_ubatch`",
    "n_threads": "`llama_n_threads`",
    "n_threads_batch": "`llama_n_threads_batch`",
    "type_k": "the log's line on the cache",
    "type_v": "the log's line on the cache",
    "flash_attn": "the log: resolved by llama.cpp, never `auto`",
    "n_gpu_layers": "the log's count of offloaded layers; 0 where there is no device",
    "tensor_buft_overrides": "the log counts the tensors that moved",
    "devices": "the log's list of devices in use",
    "no_kv_offload": "the place of the cache's buffers",
    "embeddings": "`llama_get_embeddings`",
    "repack": "the kind of the weights' buffers",
    "load_mode": "the process's own maps and locked memory",
    "cpu_mask": "the affinity of the computing threads",
    "prio": "the niceness of the process",
    "env": "the process's own environment",
    "host_settings": "the command of the host's admin that reads it",
}
"""Setting -> where its value in effect is read; for the others llama.cpp tells nothing, and the column is NULL."""

OTHERS = (
    ("-p, -n, -pg, -d", "`tests`: `n_prompt`, `n_gen`, `pg`, `n_depth`", "tokens counted in the context"),
    ("-r", "`repeat`", "samples counted"),
    ("-m", "`models`", "SHA-256 of the content"),
    ("-hf, -hff, -hft, --offline", "`models`: `hf`", "SHA-256 of the content"),
    ("--delay", "not set: a job's conditions are stored with it instead", ""),
    ("--no-warmup", "not set: a warm-up is always done and never a sample", ""),
    ("-fitt, -fitc", "not set: settings are chosen by whoever compares, not by what is free", ""),
    ("--rpc", "the variable `LLAMA_ARG_RPC`", "the log's list of devices in use"),
    ("-o, -oe, -v, --progress", "not set: results are rows in the database", ""),
)


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield a row for each setting: flag, our key, when it is set, where it is seen, and a test of it."""
    for setting in fields(Settings):
        name = setting.name
        flag = FLAGS.get(name, "-t" if name == "n_threads" else "")
        when = "host" if name == "host_settings" else "process, model" if name in LOAD_SETTINGS else "context"
        key = f"`{name}`" if name in ("env", "host_settings") else f"`params`: `{name}`"
        yield f"`{flag}`" if flag else "(ours)", key, when, SEEN.get(name, "nowhere: NULL"), test_of(name)
    for flag, key, seen in OTHERS:
        yield ", ".join(f"`{each}`" for each in flag.split(", ")), key, "", seen, ""


def test_of(name: str) -> str:
    """Return the first test that speaks of the setting."""
    for file in TESTS:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            source = ast.get_source_segment(text, node) or ""
            decorators = [ast.get_source_segment(text, d) or "" for d in getattr(node, "decorator_list", [])]
            mentions = any(f'"{name}"' in part or f"{name}=" in part for part in (source, *decorators))
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and mentions:
                return f"`{file}`: {node.name.removeprefix('test_').replace('_', ' ')}"
    return ""


def page() -> str:
    """Return the page's text."""
    head = ("llama-bench", "ours", "set with", "seen in effect in", "tested by")
    lines = [
        "# Every parameter of llama-bench",
        "",
        "Written by `python -m scripts.parameters`. What is set is never taken for what is in effect: where llama.cpp",
        "tells nothing, the column is NULL.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(row)} |" for row in rows()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
