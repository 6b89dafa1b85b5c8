"""The settings of a job, as asked, in llama-bench's names and values (stdlib only)."""

from dataclasses import dataclass, fields
from typing import Any

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
QUANTISED_CACHE_TYPES = ("q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
LAZY_MODES = ("auto", "on", "off")
SPLIT_MODES = ("none", "layer", "row", "tensor")
PRIORITIES = {"low": -1, "normal": 0, "medium": 1, "high": 2, "realtime": 3}
"""Word -> llama-bench's number, which is also the value of `enum ggml_sched_priority`."""
NUMA_STRATEGIES = ("disabled", "distribute", "isolate", "numactl")
ENGINE_VARIABLES = (
    "GGML|LLAMA|CUDA|CUBLAS|NCCL|HIP|HSA|ROCR|ROCBLAS|HIPBLASLT|AMD|GPU|VK|SYCL|ONEAPI|ZE|UR|MUSA|CANN|ASCEND|MTL|METAL"
)
"""First words of the variables that llama.cpp and its back ends read, as part of a regular expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings as asked; symbols (`physical`, `all`, `same`) stay symbols, switches are `on` or `off`.

    `n_threads_batch` `same` means n_threads. `tensor_split` is `3/1` (shares of one run),
    `tensor_buft_overrides` is `PATTERN=BUFFER` joined by `;`, `devices` names joined by `/`. `env` holds
    variables of the measuring process, `NAME=VALUE` joined by blanks, or `none`; `host_settings` is what the
    host itself is set to meanwhile, such as `gpu_power_w=250`, in the same form.
    """

    n_batch: int = 2048
    n_ubatch: int = 512
    n_threads: int | str = "physical"
    n_threads_batch: int | str = "same"
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: str = "auto"
    n_gpu_layers: int | str = "all"
    n_cpu_moe: int = 0
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: str = "0"
    tensor_buft_overrides: str = "none"
    devices: str = "auto"
    no_kv_offload: str = "off"
    no_op_offload: str = "off"
    no_host: str = "off"
    embeddings: str = "off"
    repack: str = "on"
    load_mode: str = "auto"
    lazy_mode: str = "auto"
    cpu_mask: str = "0x0"
    cpu_strict: str = "off"
    poll: int = 50
    prio: str = "normal"
    numa: str = "disabled"
    env: str = "none"
    host_settings: str = "none"

    def beyond_defaults(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, so that a new field never moves an old key."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of `env` by name."""
        return dict(pair.split("=", 1) for pair in self.env.split() if self.env != "none")

    @property
    def of_host(self) -> dict[str, str]:
        """What the host is set to, by name."""
        return dict(pair.split("=", 1) for pair in self.host_settings.split() if self.host_settings != "none")


LOAD_SETTINGS = (
    *("n_gpu_layers", "n_cpu_moe", "split_mode", "main_gpu", "tensor_split", "tensor_buft_overrides", "devices"),
    *("no_host", "repack", "load_mode", "lazy_mode", "cpu_mask", "cpu_strict", "poll", "prio", "numa", "env"),
    "host_settings",
)
"""Settings that belong to the process or to loading the model: jobs that share them share a measuring process."""

GPU_SETTINGS = (
    *("n_gpu_layers", "n_cpu_moe", "split_mode", "main_gpu", "tensor_split"),
    *("no_kv_offload", "no_op_offload", "no_host"),
)
"""Settings that change nothing where no layer can lie on a GPU."""

SYMBOLIC_SETTINGS = ("n_threads", "n_threads_batch", "n_gpu_layers")
"""Settings that are a number or a symbol."""

NUMBERS = ("n_batch", "n_ubatch", "n_cpu_moe", "main_gpu", "poll")
"""Settings that are always a number."""
