"""The memory bandwidth of GPUs as their driver's figures give it: computed, never measured here."""

import uuid
from typing import Any

from schema.host import Gpu
from schema.probe import Probe

METHOD = "driver: bus width × clock"


def gpu_probes(gpus: tuple[Gpu, ...], known: dict[str, Any]) -> tuple[Probe, ...]:
    """Return a theoretical bandwidth for each GPU whose driver tells bus width and clock, and nothing for others.

    `known` are the fields that every probe of the machine has; `device` is the GPU's number and name.
    """
    return tuple(
        Probe(
            **known,
            probe_uid=uuid.uuid4().hex,
            kind="gpu_memory",
            method=METHOD,
            value=float(bytes_per_s),
            device=f"{index}: {gpu.name}",
            theoretical=True,
            details={"pci_id": gpu.pci_id},
        )
        for index, gpu in enumerate(gpus)
        if (bytes_per_s := gpu.theoretical_bandwidth_bytes_per_second) is not None
    )
