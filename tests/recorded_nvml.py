"""Stands for the module pynvml with answers written down: no GPU was at hand when the tests were made.

The numbers are those that nvidia-smi's captures and the makers' data sheets give for these GPUs; which calls each
refuses is as NVIDIA's documentation and reports of users have it.
"""

from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

NOT_SUPPORTED, NOT_FOUND, LOST = 3, 6, 15
MIB = 1 << 20


class Refused(Exception):  # noqa: N818 - named for what it says
    """What pynvml raises: NVML's code in `value`."""

    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 6: "Not Found", 15: "GPU is lost"}.get(value, f"code {value}"))
        self.value = value


class BrokenNvml(ModuleType):
    """The module without the driver's library behind it."""

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        raise Refused(12)


class StuckNvml(ModuleType):
    """The module with a driver that does not answer until `released` is set."""

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.released = Event()

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        self.released.wait()


def memory(mebibytes: int, used: int = 1024) -> SimpleNamespace:
    return SimpleNamespace(total=mebibytes * MIB, used=used * MIB, free=(mebibytes - used) * MIB)


def pci(device_id: int, bus: str) -> SimpleNamespace:
    return SimpleNamespace(pciDeviceId=device_id, busId=f"0000{bus}")


T4: dict[str, Any] = {
    "DeviceGetName": "Tesla T4",
    "DeviceGetUUID": "GPU-00000000-1111-2222-3333-444444444444",
    "DeviceGetPciInfo": pci(0x1EB810DE, "0000:00:1E.0"),
    "DeviceGetMemoryInfo": memory(15360),
    "DeviceGetMemoryBusWidth": 256,
    "DeviceGetMaxClockInfo": 5001,
    "DeviceGetNumGpuCores": 2560,
    "DeviceGetCudaComputeCapability": (7, 5),
    "DeviceGetMaxPcieLinkGeneration": 3,
    "DeviceGetMaxPcieLinkWidth": 16,
    "DeviceGetEnforcedPowerLimit": 70_000,
    "DeviceGetEccMode": [1, 1],
    "DeviceGetPersistenceMode": 0,
    "DeviceGetVirtualizationMode": 1,
}

A100: dict[str, Any] = {
    **T4,
    "DeviceGetName": "NVIDIA A100-SXM4-80GB",
    "DeviceGetUUID": "GPU-55555555-6666-7777-8888-999999999999",
    "DeviceGetPciInfo": pci(0x20B210DE, "0000:07:00.0"),
    "DeviceGetMemoryInfo": memory(81920),
    "DeviceGetMemoryBusWidth": 5120,
    "DeviceGetMaxClockInfo": 1593,
    "DeviceGetNumGpuCores": 6912,
    "DeviceGetCudaComputeCapability": (8, 0),
    "DeviceGetMaxPcieLinkGeneration": 4,
    "DeviceGetEnforcedPowerLimit": 400_000,
    "DeviceGetPersistenceMode": 1,
    "DeviceGetMigMode": [0, 0],
}

SMALL_SLICE: dict[str, Any] = {
    "DeviceGetName": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    "DeviceGetUUID": "MIG-aaaaaaaa-0000-0000-0000-000000000001",
    "DeviceGetMemoryInfo": memory(9728),
}
SHARED_SLICE: dict[str, Any] = {
    "DeviceGetName": "NVIDIA A100-SXM4-80GB",
    "DeviceGetUUID": "MIG-aaaaaaaa-0000-0000-0000-000000000002",
    "DeviceGetMemoryInfo": memory(19968),
    "DeviceGetAttributes_v2": SimpleNamespace(gpuInstanceSliceCount=2, computeInstanceSliceCount=1, memorySizeMB=19968),
}
A100_IN_SLICES: dict[str, Any] = {
    **A100,
    "DeviceGetMigMode": [1, 1],
    "DeviceGetMaxMigDeviceCount": 7,
    "slices": {0: SMALL_SLICE, 3: SHARED_SLICE},
}

GB10: dict[str, Any] = {
    "DeviceGetName": "NVIDIA GB10",
    "DeviceGetUUID": "GPU-bbbbbbbb-6666-7777-8888-999999999999",
    "DeviceGetPciInfo": pci(0x2E1210DE, "000F:01:00.0"),
    "DeviceGetCudaComputeCapability": (12, 1),
    "DeviceGetMaxPcieLinkGeneration": 5,
    "DeviceGetMaxPcieLinkWidth": 16,
}
"""Memory, its width and its clock are refused: the GPU computes from the machine's own."""

VIRTUAL: dict[str, Any] = {
    "DeviceGetName": "GRID T4-8Q",
    "DeviceGetUUID": "GPU-cccccccc-6666-7777-8888-999999999999",
    "DeviceGetPciInfo": pci(0x1EB810DE, "0000:02:00.0"),
    "DeviceGetVirtualizationMode": 2,
    "DeviceGetCudaComputeCapability": (7, 5),
}

LOST_GPU: dict[str, Any] = {"code": LOST}


class RecordedNvml(ModuleType):
    """Replays answers; a call that a device has none for is refused as not supported."""

    def __init__(self, *devices: dict[str, Any], driver: str = "535.54.03", cuda: int = 12020) -> None:
        super().__init__("pynvml")
        self.devices = devices
        self.system = {"SystemGetDriverVersion": driver, "SystemGetCudaDriverVersion_v2": cuda}
        self.shut_down = False
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._answer(name.removeprefix("nvml"), *arguments)

    def _answer(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        if name == "Shutdown":
            self.shut_down = True
        if name in ("Init", "Shutdown"):
            return None
        if name == "DeviceGetCount":
            return len(self.devices)
        if name in self.system:
            return self.system[name]
        if name == "DeviceGetHandleByIndex":
            return self.devices[arguments[0]]
        return self._of_device(name, *arguments)

    def _of_device(self, name: str, device: dict[str, Any], *arguments: Any) -> Any:
        if "code" in device:
            raise Refused(device["code"])
        if name == "DeviceGetMigDeviceHandleByIndex":
            if arguments[0] not in device["slices"]:
                raise Refused(NOT_FOUND)
            return device["slices"][arguments[0]]
        if name not in device:
            raise Refused(NOT_SUPPORTED)
        answer = device[name]
        return answer(*arguments) if callable(answer) else answer


def running(**answers: Any) -> RecordedNvml:
    """Return a T4 at work; an answer given as None is refused."""
    device = {
        **T4,
        "DeviceGetClockInfo": lambda kind: {1: 1590, 2: 5000}[kind],
        "DeviceGetPowerUsage": 67_500,
        "DeviceGetTemperature": lambda sensor: 71,
        "DeviceGetMemoryInfo": memory(15360, used=2048),
        "DeviceGetCurrentClocksEventReasons": 0x4,
        "DeviceGetTotalEnergyConsumption": 123_456,
        "DeviceGetViolationStatus": lambda policy: SimpleNamespace(violationTime=policy * 10, referenceTime=1),
        "DeviceGetPerformanceState": 0,
        "DeviceGetComputeRunningProcesses": [SimpleNamespace(pid=11, usedGpuMemory=None)],
        "DeviceGetGraphicsRunningProcesses": [
            SimpleNamespace(pid=12, usedGpuMemory=100 << 20),
            SimpleNamespace(pid=13, usedGpuMemory=3 << 30),
        ],
    }
    return RecordedNvml({name: answer for name, answer in {**device, **answers}.items() if answer is not None})
