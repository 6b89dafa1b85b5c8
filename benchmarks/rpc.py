"""Offload without a GPU: llama.cpp's RPC back end on loopback as a real device, with 0, half and all layers on it.

    tokfleet build add rpc --cmake-args "-DGGML_RPC=ON"
    python benchmarks/rpc.py PYTHON      (the Python of that build: see `tokfleet build list`)

Starts llama.cpp's own RPC server, measures the real 270M model with each number of layers, and prints what
was asked for, what is in effect, where the weights lie, and the rates. Ends with 1 where a row's
device or layers in effect are not those asked for, or where a build without RPC is not refused.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.fidelity import model_file

SERVER = """
import ctypes, sys
import llama_cpp.llama_cpp as lib
raw = lib._lib
raw.ggml_backend_dev_by_type.restype = ctypes.c_void_p
raw.ggml_backend_dev_by_type.argtypes = [ctypes.c_int]
raw.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
raw.ggml_backend_reg_by_name.restype = ctypes.c_void_p
raw.ggml_backend_reg_by_name.argtypes = [ctypes.c_char_p]
raw.ggml_backend_reg_get_proc_address.restype = ctypes.c_void_p
raw.ggml_backend_reg_get_proc_address.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
lib.llama_backend_init()
registry = raw.ggml_backend_reg_by_name(b"RPC")
if not registry:
    sys.exit("this build has no RPC back end")
address = raw.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_rpc_start_server")
text, size = ctypes.c_char_p, ctypes.c_size_t
start = ctypes.CFUNCTYPE(None, text, text, size, size, ctypes.c_void_p)(address)
devices = (ctypes.c_void_p * 1)(raw.ggml_backend_dev_by_type(0))
start(sys.argv[1].encode(), None, 1, 1, devices)
"""
COLUMNS = "asked_n_gpu_layers, n_gpu_layers, devices, test, avg_ts, buffers"
QUERY = f"select {COLUMNS} from results order by test_time"


@contextlib.contextmanager
def server(python: str) -> Iterator[str]:
    """Run llama.cpp's RPC server on a free port of loopback and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    process = subprocess.Popen([python, "-c", SERVER, address], stdout=subprocess.DEVNULL)
    try:
        _wait_for(process, port)
        yield address
    finally:
        process.kill()
        process.wait()


def _wait_for(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the RPC server ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise SystemExit("the RPC server does not answer")


def measure(python: str, address: str, home: Path, layers: list[int | str]) -> list[dict[str, Any]]:
    """Run a small sweep over `n_gpu_layers` and return its rows."""
    sweep = home / "rpc.yaml"
    sweep.write_text(
        f"models: [{{path: {model_file('gemma')}}}]\ntests: {{n_prompt: 64, n_gen: 16}}\n"
        f"params: {{n_gpu_layers: {json.dumps(layers)}, n_threads: 1}}\nrepeat: 3\n"
    )
    environment = os.environ | {"TOKFLEET_HOME": str(home), "LLAMA_ARG_RPC": address}
    tokfleet = str(Path(sys.executable).with_name("tokfleet"))
    subprocess.run([tokfleet, "run", str(sweep), "--yes", "--python", python], check=True, env=environment)
    rows: list[dict[str, Any]] = json.loads(
        subprocess.check_output([tokfleet, "sql", QUERY, "--format", "json"], env=environment)
    )
    return rows


def refused(address: str) -> bool:
    """Return whether a build without RPC that is asked for a server is refused in words."""
    tokfleet = str(Path(sys.executable).with_name("tokfleet"))
    environment = os.environ | {"LLAMA_ARG_RPC": address}
    done = subprocess.run([tokfleet, "fingerprint"], env=environment, capture_output=True, text=True, check=False)
    return "has no RPC back end" in done.stderr


def main(python: str) -> int:
    """Print the rows, and return the exit status."""
    right = []
    with server(python) as address, tempfile.TemporaryDirectory() as home:
        for row in measure(python, address, Path(home), [0, 9, "all"]):
            weights = (
                json.loads(row["buffers"])["weights"] if isinstance(row["buffers"], str) else row["buffers"]["weights"]
            )
            remote = sum(size for name, size in weights.items() if "RPC" in name)
            asked, place = row["asked_n_gpu_layers"], f"{row['devices']}, {remote / 2**20:.0f} MiB of weights there"
            print(
                f"{asked:>3} asked, {row['n_gpu_layers']} in effect on {place}: {row['test']} {row['avg_ts']:.1f} t/s"
            )
            right.append((remote > 0) == (asked != "0") and (asked == "all" or row["n_gpu_layers"] == int(asked)))
        right.append(refused(address))
    print(f"a build without RPC is {'refused' if right[-1] else 'NOT refused'}")
    return 0 if all(right) and len(right) > 3 else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(main(sys.argv[1]))
