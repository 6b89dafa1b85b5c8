"""Good files as llama-bench and batched-bench write them, with made-up results, of several ages."""

import json
import random
import sqlite3
import statistics
from collections.abc import Callable, Sequence

FORMS = ("md", "json", "jsonl", "csv", "sql", "sqlite", "batched-bench")
OLD = (
    *("build_commit", "build_number", "cuda", "metal", "gpu_blas", "blas", "cpu_info", "gpu_info", "model_filename"),
    *("model_type", "model_size", "model_n_params", "n_batch", "n_threads", "f16_kv", "n_gpu_layers", "main_gpu"),
    *("mul_mat_q", "tensor_split", "n_prompt", "n_gen", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts"),
)
NEW = (
    *("build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type"),
    *("model_size", "model_n_params", "n_batch", "n_ubatch", "n_threads", "cpu_mask", "cpu_strict", "poll"),
    *("type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode", "main_gpu", "no_kv_offload", "flash_attn"),
    *("devices", "tensor_split", "tensor_buft_overrides", "load_mode", "lazy_mode", "embeddings", "no_op_offload"),
    *("no_host", "repack", "fit_target", "fit_min_ctx", "n_prompt", "n_gen", "n_depth", "test_time"),
    *("avg_ns", "stddev_ns", "avg_ts", "stddev_ts"),
)
TEXTS = {
    *("build_commit", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "cpu_mask", "type_k"),
    *("type_v", "split_mode", "devices", "tensor_split", "tensor_buft_overrides", "load_mode", "lazy_mode"),
    "test_time",
}
SWITCHES = {
    *("cuda", "metal", "gpu_blas", "blas", "f16_kv", "mul_mat_q", "cpu_strict", "no_kv_offload", "embeddings"),
    *("no_host", "repack"),
}
Result = dict[str, str]
Found = Sequence[tuple[Result, list[int]]]
"""Results, each with its samples in ns."""


def results(rng: random.Random, fields: Sequence[str]) -> list[tuple[Result, list[int]]]:
    """Return two to four results of one run, each field as llama-bench writes it, with their samples in ns."""
    common = {
        **dict.fromkeys(("cuda", "blas", "gpu_blas", "f16_kv", "mul_mat_q", "repack"), "1"),
        **dict.fromkeys(("metal", "cpu_strict", "no_kv_offload", "embeddings", "no_op_offload", "no_host"), "0"),
        **dict.fromkeys(("n_cpu_moe", "fit_target", "fit_min_ctx", "main_gpu"), "0"),
        "build_commit": f"5{rng.getrandbits(28):07x}",
        "build_number": str(rng.randrange(1200, 9999)),
        "cpu_info": "AMD Ryzen 9 5900X 12-Core Processor",
        "gpu_info": rng.choice(("NVIDIA GeForce RTX 3060", "NVIDIA A, NVIDIA B", "")),
        "backends": "CUDA",
        "model_filename": rng.choice(("/srv/models/demo-4B.gguf", "C:\\models\\demo.gguf", "/srv/modèles/a.gguf")),
        "model_type": "qwen3 4B Q4_K - Medium",
        "model_size": str(rng.randrange(10**8, 10**11)),
        "model_n_params": str(rng.randrange(10**8, 10**11)),
        "n_batch": "2048",
        "n_ubatch": rng.choice(("512", "1024")),
        "n_threads": str(rng.randrange(1, 65)),
        "cpu_mask": "0x0",
        "poll": "50",
        "type_k": rng.choice(("f16", "q8_0")),
        "type_v": "f16",
        "n_gpu_layers": rng.choice(("99", "-1", "0")),
        "split_mode": "layer",
        "flash_attn": rng.choice(("-1", "0", "1")),
        "devices": "auto",
        "tensor_split": rng.choice(("0.00", "5.00/5.00")),
        "tensor_buft_overrides": rng.choice(("none", r"blk\.(8|9)\.ffn_(up|down)_exps=CPU;blk\.1=CUDA1")),
        "load_mode": "mmap",
        "lazy_mode": "auto",
    }
    tests = [(512, 0, 0), (0, 128, 0), (512, 0, 4096), (4096, 128, 0)][: rng.randrange(2, 5)]
    return [_result(rng, common, fields, *test, second) for second, test in enumerate(tests)]


def _result(
    rng: random.Random, common: Result, fields: Sequence[str], n_prompt: int, n_gen: int, n_depth: int, second: int
) -> tuple[Result, list[int]]:
    mean = rng.randrange(10**7, 10**10)
    samples = [round(mean * rng.uniform(0.98, 1.02)) for _ in range(5)]
    rates = [1e9 * (n_prompt + n_gen) / ns for ns in samples]
    own = {
        "n_prompt": str(n_prompt),
        "n_gen": str(n_gen),
        "n_depth": str(n_depth),
        "test_time": f"2025-10-11T09:14:{second:02d}Z",
        "avg_ns": str(round(statistics.fmean(samples))),
        "stddev_ns": str(round(statistics.stdev(samples))),
        "avg_ts": f"{statistics.fmean(rates):.6f}",
        "stddev_ts": f"{statistics.stdev(rates):.6f}",
    }
    return {name: (common | own)[name] for name in fields}, samples


def _value(name: str, text: str) -> str:
    if name in TEXTS:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return {"0": "false", "1": "true"}[text] if name in SWITCHES else text


def _samples(result: Result, samples: list[int]) -> tuple[str, str]:
    n_tokens = int(result["n_prompt"]) + int(result["n_gen"])
    return ", ".join(map(str, samples)), ", ".join(f"{1e9 * n_tokens / ns:g}" for ns in samples)


def _json(rng: random.Random) -> str:
    return json_of(results(rng, rng.choice((OLD, NEW))))


def json_of(found: Found) -> str:
    """Return results as llama-bench's json."""
    written = []
    for result, samples in found:
        lines = [f'    "{name}": {_value(name, text)},\n' for name, text in result.items()]
        ns, ts = _samples(result, samples)
        written.append(f'  {{\n{"".join(lines)}    "samples_ns": [ {ns} ],\n    "samples_ts": [ {ts} ]\n  }}')
    return "[\n" + ",\n".join(written) + "\n]\n"


def _jsonl(rng: random.Random) -> str:
    return jsonl_of(results(rng, rng.choice((OLD, NEW))))


def jsonl_of(found: Found) -> str:
    """Return results as llama-bench's jsonl."""
    written = ""
    for result, samples in found:
        ns, ts = _samples(result, samples)
        pairs = "".join(f'"{name}": {_value(name, text)}, ' for name, text in result.items())
        written += f'{{{pairs}"samples_ns": [ {ns} ],"samples_ts": [ {ts} ]}}\n'
    return written


def _csv(rng: random.Random) -> str:
    return csv_of(results(rng, rng.choice((OLD, NEW))))


def csv_of(found: Found) -> str:
    """Return results as llama-bench's csv."""
    lines = [",".join(found[0][0])]
    lines += [",".join('"' + text.replace('"', '""') + '"' for text in result.values()) for result, _ in found]
    return "\n".join(lines) + "\n"


def _sql(rng: random.Random) -> str:
    fields, table = rng.choice(((OLD, "test"), (NEW, "llama_bench")))
    return sql_of(results(rng, fields), table)


def sql_of(found: Found, table: str = "llama_bench") -> str:
    """Return results as llama-bench's sql."""
    fields = [*found[0][0]]
    kinds = {name: "TEXT" if name in TEXTS else "REAL" if name.endswith("_ts") else "INTEGER" for name in fields}
    columns = ",\n".join(f"  {name} {kind}" for name, kind in kinds.items())
    text = f"CREATE TABLE IF NOT EXISTS {table} (\n{columns}\n);\n\n"
    for result, _ in found:
        values = ", ".join(f"'{value}'" for value in result.values())
        text += f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({values});\n"
    return text


def _md(rng: random.Random) -> str:
    """Return one or two tables in a report, with what is printed around them."""
    return "".join("# Run\n" * rng.randrange(2) + _table(rng) + "\n" for _ in range(rng.choice((1, 2))))


def _table(rng: random.Random) -> str:
    return table_of(results(rng, NEW), rng)


def table_of(found: Found, rng: random.Random) -> str:
    """Return results as llama-bench's table, with columns of settings at will, and what is printed between rows."""
    names = {"model": "model_type", "size": "", "params": "", "backend": "backends", "ngl": "n_gpu_layers"}
    chosen = {"threads": "n_threads", "type_k": "type_k", "fa": "flash_attn", "ot": "tensor_buft_overrides"}
    names |= {name: chosen[name] for name in chosen if rng.random() < 0.5}
    text = "|" + "".join(f" {name:>10} |" for name in (*names, "test", "t/s")) + "\n"
    text += "|" + " --------: |" * (len(names) + 2) + "\n"
    for result, _ in found:
        cells = [_printed(name, field, result) for name, field in names.items()]
        rate = f"{float(result['avg_ts']):.2f} ± {float(result['stddev_ts']):.2f}"
        text += "|" + "".join(f" {cell:>10} |" for cell in (*cells, _test(result), rate)) + "\n"
        text += "ggml_metal_free: deallocating\n" * (rng.random() < 0.1)
    return text + f"\nbuild: {found[0][0]['build_commit']} ({found[0][0]['build_number']})\n"


def _printed(name: str, field: str, result: Result) -> str:
    if name == "size":
        size = int(result["model_size"])
        return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"
    if name == "params":
        number = int(result["model_n_params"])
        return f"{number / 1e6:.2f} M" if number < 10**9 else f"{number / 1e9:.2f} B"
    return result[field]


def _test(result: Result) -> str:
    parts = [f"pp{result['n_prompt']}"] * (result["n_prompt"] != "0") + [f"tg{result['n_gen']}"] * (
        result["n_gen"] != "0"
    )
    return "+".join(parts) + (f" @ d{result['n_depth']}" if result["n_depth"] != "0" else "")


def _batched(rng: random.Random) -> str:
    written = ""
    for pl in (1, 2, 4)[: rng.randrange(1, 4)]:
        pp, tg, shared = rng.choice((128, 512)), rng.choice((32, 128)), rng.randrange(2)
        t_pp, t_tg = rng.uniform(0.1, 2), rng.uniform(1, 9)
        prompt = pp if shared else pl * pp
        start = {"n_kv_max": 8192, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": shared}
        start |= {"n_gpu_layers": 99, "n_threads": 8, "n_threads_batch": 8, "pp": pp, "tg": tg, "pl": pl}
        times = {"t_pp": t_pp, "speed_pp": prompt / t_pp, "t_tg": t_tg, "speed_tg": pl * tg / t_tg, "t": t_pp + t_tg}
        times["speed"] = (prompt + pl * tg) / times["t"]
        head = json.dumps(start | {"n_kv": pl * (pp + tg)})[:-1]
        written += head + "".join(f', "{name}": {value:.6f}' for name, value in times.items()) + "}\n"
    return written


def database(*scripts: str) -> bytes:
    """Return the SQLite file that llama-bench's sql makes, piped into sqlite3; what it refuses is left out."""
    connection = sqlite3.connect(":memory:")
    for script in scripts:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.execute(statement)
    connection.commit()
    return connection.serialize()


def good_file(form: str, rng: random.Random) -> tuple[str, bytes]:
    """Return a good file of `form` as text and as bytes."""
    if form == "sqlite":
        return "", database(_sql(rng), _sql(rng))
    text = WRITERS[form](rng)
    return text, text.encode()


WRITERS: dict[str, Callable[[random.Random], str]] = {
    "md": _md,
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
    "sql": _sql,
    "batched-bench": _batched,
}
