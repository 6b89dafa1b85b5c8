"""The measuring process's environment variables: what it gets, what of it can change a figure (stdlib only)."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from schema.settings import ENGINE_VARIABLES, Settings

REPOSITORY = Path(__file__).parents[1]
NOT_FOR_THE_CHILD = ("OMP_", "GOMP_", "KMP_", "OPENBLAS_", "RAY_")
"""Prefixes of variables that Ray or a shell sets for others and that would change what is measured."""

TELLING = re.compile(f"({ENGINE_VARIABLES}|OMP|GOMP|KMP|NVIDIA)_.*")
"""Variables that llama.cpp, its back ends and OpenMP read."""

GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""What CUDA and ROCm take for the list of the GPUs that a process may see."""

SECRET = re.compile(".*(TOKEN|SECRET|PASSWORD|KEY).*")


def child_environment(asked: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our own variables less what would change the measurement, with what a job asks for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_FOR_THE_CHILD)}
    return {**kept, **(asked or {}), "PYTHONPATH": str(REPOSITORY), "PYTHONUNBUFFERED": "1"}


def hiding_gpus(settings: Settings) -> dict[str, str]:
    """Return variables that keep a job of the CPU, one without a layer or a device for a GPU, from seeing any."""
    of_the_cpu = settings.devices in ("auto", "none") and settings.n_gpu_layers == 0
    return dict.fromkeys(GPU_VARIABLES, "-1") if of_the_cpu else {}


def in_force(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that can change a figure, as they are stored with it."""
    return {
        name: value[:1000]
        for name, value in sorted(variables.items())
        if TELLING.fullmatch(name) and not SECRET.fullmatch(name)
    }
