"""Writes tests/golden/llama_bench_lines.json: what llama-bench itself runs for command lines as people post them.

Usage, in the repository's folder:
    .venv/bin/python -m scripts.llama_bench_golden path/to/llama-bench path/to/tiny.gguf

Any small model will do, such as `tokfleet model synth test-tiny` prints one. The numbers of tokens are small, the
syntax is what counts. Of each test only the parameters are kept that differ from llama-bench's defaults; an empty
list means that nothing ran, null that llama-bench refused the line. Use the llama-bench of the locked llama.cpp.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "llama_bench_lines.json"
DEFAULT_MODEL = "models/7B/ggml-model-q4_0.gguf"
LEFT_OUT = (
    *("build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_type", "model_size"),
    *("model_n_params", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts"),
    *("fit_target", "fit_min_ctx"),
)

LINES = (
    "",
    "-m llama-2-7b.Q4_0.gguf",
    "-m llama-2-7b.Q4_0.gguf -ngl 99",
    "-m llama-2-7b.Q4_0.gguf -ngl 99 -fa 0,1",
    "-m llama-2-7b.Q4_0.gguf -ngl 100 -fa 0 -fa 1",
    "-m llama-2-7b.Q4_0.gguf -fa 1 -ngl 99 -p 16 -n 8 -r 3",
    "-m llama-2-7b.Q4_0.gguf -fa on -p 16 -n 0",
    "-m llama-2-7b.Q4_0.gguf -fa enabled,disabled,-1 -p 8 -n 0",
    "-m llama-2-7b.Q4_0.gguf -fa true -fa false -fa auto -p 8 -n 0",
    "-m models/7B/ggml-model-q4_0.gguf -m models/13B/ggml-model-q4_0.gguf -p 0 -n 4,8,16",
    "-m models/7B/ggml-model-q4_0.gguf,models/13B/ggml-model-q4_0.gguf -p 8 -n 0",
    "-n 0 -p 32 -b 4,8,16,32",
    "-n 0 -n 4 -p 16 -t 1,2,4",
    "-ngl 10,20,30,31,32,33,34,35 -p 4 -n 2",
    "-d 0,16 -p 8 -n 4",
    "-m qwen2.5-7b-instruct-q4_k_m.gguf -p 16 -n 8 -d 0,64 -ngl 99 -fa 1",
    "-m qwen2.5-7b-instruct-q4_k_m.gguf -p 16 -d 0 -d 8 -d 16 -n 4",
    "-m qwen2.5-7b-instruct-q4_k_m.gguf -d 0-32+8 -p 4 -n 0",
    "-m gpt-oss-20b-mxfp4.gguf -fa 1 -d 0,4,8 -p 32 -ub 32 -b 64",
    "-m gpt-oss-120b-mxfp4.gguf -ngl 99 -b 64 -ub 64 -p 16,32 -n 8",
    "-m gpt-oss-120b-mxfp4.gguf -ncmoe 0,12,24 -p 4 -n 4 -fa 1 --threads 1",
    "-m Mixtral-8x7B.gguf -ngl 99 -ot exps=CPU -p 4 -n 4",
    "-m Mixtral-8x7B.gguf -ot 'blk\\.(1|2|3)\\.ffn_.*_exps\\.=CPU' -p 4 -n 0",
    "-m Mixtral-8x7B.gguf -ot 'ffn_up_exps=CPU;ffn_down_exps=CPU,ffn_gate_exps=CPU' -p 4 -n 0",
    "-m Mixtral-8x7B.gguf -ot ,exps=CPU -p 4 -n 0",
    "-m Mixtral-8x7B.gguf -ot exps=CPU -ot '' -p 4 -n 0",
    "-m Mixtral-8x7B.gguf --override-tensor 'a=CPU;;b=CPU,' -p 4 -n 0",
    "-m phi.gguf -p 1-64*2 -n 0",
    "-m phi.gguf -p 16-64+16 -n 1-4",
    "-m phi.gguf -p 8,16-32+8,64 -n 0",
    "-m phi.gguf -p 8, -n 0",
    "-m phi.gguf -p 0 -n 8-8",
    "-m phi.gguf -pg 16,8",
    "-m phi.gguf -p 0 -n 0 -pg 16,8",
    "-m phi.gguf -p 0 -n 0 -pg 16,8 -pg 32,4 -d 0,8",
    "-m phi.gguf -pg 16,0 -p 0 -n 4",
    "-m phi.gguf -p 0 -n 0 -pg 0,8",
    "-m phi.gguf -p 8 -n 4 -pg 0,0",
    "-m phi.gguf -p 0 -n 0",
    "-m phi.gguf -p 16,16 -n 4 -n 4",
    "-m phi.gguf --n-prompt 16 --n-gen 8 --n-depth 4 --batch-size 32 --ubatch-size 16",
    "-m phi.gguf --n_prompt 16 --n_gen 8 --cache_type_k q8_0 --cache_type_v q8_0 --flash_attn 1",
    "-m phi.gguf -ctk q8_0 -ctv q8_0 -fa 1 -p 8 -n 4",
    "-m phi.gguf -ctk f16,q8_0,q4_0 -ctv f16 -p 4 -n 0",
    "-m phi.gguf -ctk bf16 -ctv bf16 -p 4 -n 0",
    "-m phi.gguf -ctk iq4_nl,q5_0,q5_1,q4_1 -fa 1 -p 4 -n 0",
    "-m phi.gguf -t 1-4 -p 4 -n 4",
    "-m phi.gguf -t 1-4*2 -n 4 -p 0",
    "-m phi.gguf -t 2 -t 1 -p 4 -n 0",
    "-m phi.gguf -C 0x1,0x3 -t 1 -p 4 -n 0",
    "-m phi.gguf -C 3 --cpu-strict 0,1 --poll 0,50,100 -t 2 -p 4 -n 0",
    "-m phi.gguf --cpu-mask 0x0F --cpu-strict 1 --poll 0-100+50 -t 1 -p 4 -n 0",
    "-m phi.gguf --prio 0 -p 4 -n 4",
    "-m phi.gguf --numa distribute -p 4 -n 0",
    "-m phi.gguf -sm none,layer -mg 0 -p 4 -n 0",
    "-m phi.gguf -sm row -mg 1 -ts 3/1 -p 4 -n 0",
    "-m phi.gguf -mg 1 -mg 0 -p 4 -n 0",
    "-m phi.gguf -ts 5/5 -p 4 -n 0",
    "-m phi.gguf -ts '1;1' -p 4 -n 0",
    "-m phi.gguf -ts 5,5 -p 4 -n 0",
    "-m phi.gguf -ts 0.6/0.4,1/0,.5/.25/.25 -p 4 -n 0",
    "-m phi.gguf -nkvo 0,1 -p 4 -n 4",
    "-m phi.gguf -nkvo 1 -nopo 1 --no-host 1 -p 4 -n 0",
    "-m phi.gguf --repack 0,1 -p 4 -n 0",
    "-m phi.gguf -embd 0,1 -p 4 -n 0",
    "-m phi.gguf -dev none -p 4 -n 0",
    "-m phi.gguf -dev auto,none -p 4 -n 0",
    "-m phi.gguf -lm mmap,none -p 4 -n 0",
    "-m phi.gguf -lm auto -lm mlock,mmap+mlock,dio -lzm on,off,auto -p 4 -n 0",
    "-m phi.gguf -ngl -1 -p 4 -n 0",
    "-m phi.gguf -ngl 0,-1,99 -p 4 -n 0",
    "-m phi.gguf --progress -v -p 4 -n 0",
    "-m phi.gguf -b 8-32*2 -ub 4,8 -p 16 -n 0",
    "-m phi.gguf -p 4-16*2 -n 2-4+2 -d 0,8 -b 16,32 -fa 0,1 -t 1,2",
    "-m phi.gguf -p 0-9*2",
    "-m phi.gguf -p 5-5+0",
    "-m phi.gguf -p 9-9*1",
    "-m phi.gguf -p -16",
    "-m phi.gguf -p 12x",
    "-m phi.gguf -p ,12",
    "-m phi.gguf -p 1..4",
    "-m phi.gguf -n",
    "-m phi.gguf -pg 16",
    "-m phi.gguf -pg 16,8,4",
    "-m phi.gguf -ctk f32",
    "-m phi.gguf -ctk q8_0,Q4_0",
    "-m phi.gguf -fa yes",
    "-m phi.gguf -nkvo on",
    "-m phi.gguf --repack true",
    "-m phi.gguf -sm column",
    "-m phi.gguf -lm mmap,fast",
    "-m phi.gguf -ot exps",
    "-m phi.gguf -ts 1/x",
    "-m phi.gguf --numa everywhere",
    "-m phi.gguf -ngl all",
    "-m phi.gguf --ctx-size 4096",
    "-m phi.gguf 512",
)


def main() -> int:
    """Run every line and write the file; what llama-bench said about the lines it refused goes to standard error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_bench", type=Path)
    parser.add_argument("model", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _put_models(Path(folder), given.model.absolute())
        first = _tests(given.llama_bench.absolute(), "-p 1 -n 0", folder) or []
        defaults = _parameters(first[0]) | {"n_prompt": 0, "n_gen": 0}
        grids = {}
        for line in LINES:
            tests = _tests(given.llama_bench.absolute(), line, folder)
            grids[line] = None if tests is None else [_beyond(defaults, _parameters(test)) for test in tests]
    build = json.dumps(first[0]["build_commit"])
    lines = ",\n".join(f"  {json.dumps(line)}: {json.dumps(grid)}" for line, grid in grids.items())
    GOLDEN.write_text(
        f'{{"llama_cpp_commit": {build},\n"defaults": {json.dumps(defaults)},\n"lines": {{\n{lines}\n}}}}\n'
    )
    return 0


def _put_models(folder: Path, model: Path) -> None:
    words = [word for line in LINES for word in shlex.split(line)]
    names = {name for word in words if word.endswith(".gguf") for name in word.split(",")}
    for name in names | {DEFAULT_MODEL}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(model)


def _tests(llama_bench: Path, line: str, folder: str) -> list[dict[str, Any]] | None:
    """Return the tests that ran, None where the line was refused."""
    command = [str(llama_bench), *shlex.split(line)]
    # What we append must not complete a line that ends too early.
    command[1:1] = ["-o", "jsonl", *([] if "-r" in command else ["-r", "1"])]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "invalid parameter" in done.stderr:
        return None
    if done.returncode:
        sys.stderr.write(f"{line}: {done.returncode}: {done.stderr}\n")
    return [json.loads(row) for row in done.stdout.splitlines()]


def _parameters(test: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in test.items() if name not in LEFT_OUT}


def _beyond(defaults: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value != defaults[name]}


if __name__ == "__main__":
    sys.exit(main())
