"""The keys a sweep may hold at each level, and what is meant by a key that is none of them (stdlib only)."""

import difflib
import re
from dataclasses import fields

from schema.settings import Settings

LEVELS = {
    "": (
        *("name", "hosts", "models", "tests", "params", "env", "repeat", "builds", "order", "across", "rounds"),
        *("host_settings", "tags", "timeout"),
    ),
    "models": ("path", "synthetic", "like", "hf"),
    "tests": ("n_prompt", "n_gen", "n_depth", "pg", "n_parallel", "verify"),
    "params": (*(field.name for field in fields(Settings) if field.name not in ("env", "host_settings")), "mmap"),
}
"""Level (the key above, "" at the top) -> its keys."""

GROUPS = ("matrix", "grid", "axes")
"""Words under which others keep what is here split into `tests` and `params`."""

_WRITTEN_ELSEWHERE = {
    "name": ("title", "label", "sweep"),
    "hosts": ("host", "machines", "machine", "nodes", "workers"),
    "models": ("model", "m", "gguf", "model_path", "model_file", "models_list"),
    "tests": ("test", "workload", "workloads", "benchmarks"),
    "params": ("param", "parameters", "settings", "options", "config"),
    "repeat": ("repetitions", "repetition", "repeats", "reps", "r", "runs", "iterations", "n_runs", "repeat_count"),
    "builds": ("build", "build_type"),
    "order": ("ordering", "schedule"),
    "across": ("alternate", "abba"),
    "rounds": ("round", "replicas", "blocks"),
    "tags": ("tag", "labels", "metadata"),
    "timeout": ("time_limit", "deadline", "max_time", "timeout_seconds"),
    "path": ("file", "filename"),
    "hf": ("hf_repo", "huggingface", "repo", "hub"),
    "n_prompt": ("p", "pp", "prompt", "prompt_tokens", "n_prompts", "prefill", "input_tokens", "input_len"),
    "n_gen": ("n", "tg", "gen", "generate", "n_predict", "max_tokens", "decode", "output_tokens", "output_len"),
    "n_depth": ("d", "depth", "depths", "context_depth"),
    "pg": ("prompt_gen", "pp_tg"),
    "n_batch": ("b", "batch", "batch_size", "batches"),
    "n_ubatch": ("ub", "ubatch", "ubatch_size", "micro_batch"),
    "n_threads": ("t", "threads", "thread", "n_thread", "num_threads"),
    "n_threads_batch": ("tb", "threads_batch"),
    "type_k": ("ctk", "cache_type_k", "kv_type_k", "k_type"),
    "type_v": ("ctv", "cache_type_v", "kv_type_v", "v_type"),
    "flash_attn": ("fa", "flash_attention", "flashattn", "flash"),
    "n_gpu_layers": ("ngl", "gpu_layers", "n_gpu_layer", "num_gpu_layers"),
    "mmap": ("mmp", "use_mmap", "no_mmap"),
    "n_cpu_moe": ("ncmoe", "cpu_moe"),
    "split_mode": ("sm",),
    "main_gpu": ("mg",),
    "tensor_split": ("ts",),
    "tensor_buft_overrides": ("ot", "override_tensor"),
    "devices": ("device", "dev"),
    "no_kv_offload": ("nkvo",),
    "no_op_offload": ("nopo",),
    "embeddings": ("embd", "embedding"),
    "load_mode": ("lm", "mlock", "use_mlock", "use_direct_io", "dio"),
    "lazy_mode": ("lzm",),
    "prio": ("priority",),
    "n_parallel": ("npl", "parallel", "n_seq", "sequences"),
    "env": ("environment", "envs"),
    "host_settings": ("power_limit", "gpu_power", "host_params", "machine_settings"),
}

_ANSWERS = {
    "warmup": "a warm-up is always done and never stored; leave the key out.",
    "no_warmup": "a warm-up is always done and never stored; leave the key out.",
    "n_ctx": "the context is made as large as each test needs; leave the key out, or see `n_depth` under `tests`.",
    "ctx_size": "the context is made as large as each test needs; leave the key out, or see `n_depth` under `tests`.",
    "seed": "the token ids always come from one recorded seed; leave the key out.",
    "output": "results go to the database; choose a format when you read them, with `tokfleet results --format`.",
}

_LATER = ("rpc", "delay", "keep_token_ns", "fit_target", "fit_min_ctx")
"""Settings of llama-bench and plans of ours that this version does not have."""

_LEVEL_OF = {key: level for level, keys in LEVELS.items() for key in keys}
_SYNONYMS = {word: key for key, words in _WRITTEN_ELSEWHERE.items() for word in words}
_LONG_WORDS = {word: key for word, key in {**_SYNONYMS, **{key: key for key in _LEVEL_OF}}.items() if len(word) > 3}


def meant(key: str, level: str) -> str | None:
    """Return the key of ours that `key` most likely stands for, of `level` where several could, or None."""
    word = _plain(key)
    if word in _LEVEL_OF:
        return word
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    here = [known for known in LEVELS.get(level, ()) if len(known) > 3]
    for words in (here, list(_LONG_WORDS)):
        near = difflib.get_close_matches(word[:40], words, n=1, cutoff=0.75)
        if near:
            return _LONG_WORDS[near[0]]
    return None


def explain(key: str, level: str) -> str:
    """Return what to do about the unknown `key` under `level` (a level of LEVELS, or one of GROUPS)."""
    word = _plain(key)
    if word in GROUPS and not level:
        return "unknown key; what is timed stands under `tests`, settings stand under `params`."
    if word in _ANSWERS:
        return _ANSWERS[word]
    known = meant(key, level)
    if known is None or (word in _LATER and word not in _SYNONYMS):
        return _unknown(key, level)
    if known in LEVELS.get(level, ()):
        return f"unknown key {key!r:.60}; the nearest is `{known}`."
    under = f"under `{_LEVEL_OF[known]}`" if _LEVEL_OF[known] else "at the top of the file"
    return f"unknown key here; write `{known}` {under}."


def _unknown(key: str, level: str) -> str:
    if _plain(key) in _LATER:
        return "not in this version; leave the key out."
    known = LEVELS.get(level) or (*LEVELS["tests"], *LEVELS["params"])
    return f"unknown key {key!r:.60}; known here: {', '.join(known)}."


def _plain(key: str) -> str:
    return re.sub(r"[\s./-]+", "_", key.strip().lstrip("-").lower())
