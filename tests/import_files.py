"""One run of llama-bench in each form that it prints, for tests of the import."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks.import_inputs import database

BUILD = "\nbuild: 5e1ab07c (6721)\n"
HEAD = "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | ---: | ---: |\n"
_COMMON: dict[str, Any] = {
    "build_commit": "5e1ab07c",
    "build_number": 6721,
    "cpu_info": "AMD Ryzen 9 5900X",
    "gpu_info": "NVIDIA GeForce RTX 3060",
    "backends": "CUDA",
    "model_filename": "/srv/demo-4B.gguf",
    "model_type": "qwen3 4B Q4_K - Medium",
    "model_size": 2491000000,
    "model_n_params": 4020000000,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_threads": 12,
    "n_gpu_layers": 99,
    "flash_attn": 0,
}
PP = _COMMON | {
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "test_time": "2025-10-11T09:14:02Z",
    "avg_ns": 281748877,
    "stddev_ns": 1461894,
    "avg_ts": 1817.260003,
    "stddev_ts": 9.376994,
}
TG = _COMMON | {
    "n_prompt": 0,
    "n_gen": 128,
    "n_depth": 0,
    "test_time": "2025-10-11T09:14:09Z",
    "avg_ns": 2088029939,
    "stddev_ns": 4188485,
    "avg_ts": 61.302000,
    "stddev_ts": 0.122760,
}
SAMPLES = {
    "pp512": {"samples_ns": [280715162, 282782592], "samples_ts": [1823.9, 1810.6]},
    "tg128": {"samples_ns": [2085068232, 2090991646], "samples_ts": [61.389, 61.2151]},
}
BATCHED = (
    '{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": 0, "is_pp_shared": 0, "n_gpu_layers": 99, '
    '"n_threads": 8, "n_threads_batch": 8, "pp": 128, "tg": 64, "pl": 2, "n_kv": 384, "t_pp": 0.422602, '
    '"speed_pp": 605.770935, "t_tg": 11.106112, "speed_tg": 23.050371, "t": 11.528713, "speed": 44.410854}\n'
)


def jsonl(*rows: dict[str, Any]) -> str:
    """Return the rows, those of the run where none are given, as llama-bench's jsonl, with their samples."""
    lines = [row | SAMPLES["pp512" if row["n_prompt"] else "tg128"] for row in rows or (PP, TG)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def as_json() -> str:
    """Return the run as llama-bench's json."""
    lines = [json.loads(line) for line in jsonl().splitlines()]
    return json.dumps(lines, indent=2) + "\n"


def csv(*rows: dict[str, Any]) -> str:
    """Return the rows, those of the run where none are given, as llama-bench's csv."""
    rows = rows or (PP, TG)
    lines = [",".join(rows[0]), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
    return "\n".join(lines) + "\n"


def sql() -> str:
    """Return the run as llama-bench's sql."""
    columns = ",\n".join(f"  {name} TEXT" for name in PP)
    text = f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);\n\n"
    for row in (PP, TG):
        values = ", ".join(f"'{value}'" for value in row.values())
        text += f"INSERT INTO llama_bench ({', '.join(row)}) VALUES ({values});\n"
    return text


def table_row(test: str = "pp512", rate: str = "1817.26 ± 9.38") -> str:
    """Return a row of llama-bench's table."""
    return f"| qwen3 4B Q4_K - Medium | 2.32 GiB | 4.02 B | CUDA | 99 | {test} | {rate} |\n"


def md() -> str:
    """Return the run as llama-bench's table."""
    return HEAD + table_row() + table_row("tg128", "61.30 ± 0.12") + BUILD


def in_every_form(folder: Path) -> list[Path]:
    """Write the run into a file of each form and return their paths, by name."""
    texts = {"run.csv": csv(), "run.json": as_json(), "run.jsonl": jsonl(), "run.md": md(), "run.sql": sql()}
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "run.sqlite").write_bytes(database(sql()))
    return [folder / name for name in (*texts, "run.sqlite")]


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a question to an SQLite file, read without our code."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()
