"""A machine as its own worker describes it: who, what it is made of, how much we may use, what runs on it."""

from dataclasses import asdict, dataclass, field

from schema.canonical import digest
from schema.gpu_name import AMD_TRANSFERS, gpu_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One graphics processor, or one MIG slice of it, that the driver lets us use; what is not known is None.

    `vram_bytes` is the memory it computes from, in whole GiB. Where `unified`, that is the memory of the
    machine, never to be added to it; `usable_bytes` is then how much of it programs may take as the machine
    is set up (AMD's carve-out and GTT, Apple's wired limit). `architecture` is NVIDIA's compute capability
    ("8.0") or AMD's target ("gfx1151"). `pcie_max` is the fastest link possible here, such as "gen4 x16": an
    idle GPU is linked slower. `max_memory_clock_hz` is the clock as the driver counts it.
    """

    vendor: str
    name: str
    vram_bytes: int | None = None
    pci_id: str | None = None
    unified: bool = False
    usable_bytes: int | None = None
    memory_bus_bits: int | None = None
    max_memory_clock_hz: int | None = None
    architecture: str | None = None
    pcie_max: str | None = None
    mig_profile: str | None = None
    n_cores: int | None = None

    @property
    def theoretical_bandwidth_bytes_per_second(self) -> int | None:
        """Transfers per clock × clock × bus width; None where a factor is not known.

        NVIDIA's clock counts two transfers: T4 5001 MHz × 256 bit → 320 GB/s, A100-80 1593 × 5120 → 2039.
        What AMD's clock counts depends on the memory: see `gpu_name.AMD_TRANSFERS`.
        """
        transfers = 2 if self.vendor == "NVIDIA" else AMD_TRANSFERS.get(self.architecture or "")
        if transfers is None or not self.memory_bus_bits or not self.max_memory_clock_hz:
            return None
        return transfers * self.max_memory_clock_hz * self.memory_bus_bits // 8

    @property
    def hardware_facts(self) -> tuple[str | int | bool | None, ...]:
        """What of a GPU enters a hardware id: only what no driver's version and no setting changes.

        The chip's PCI id stands for its name, which drivers change ("Tesla T4", "NVIDIA Tesla T4"). Bus width
        and clock follow from the chip, and drivers have corrected them.
        """
        chip = self.pci_id or gpu_key(self.name)
        return (self.vendor, chip, self.vram_bytes, self.unified, self.pcie_max, self.mig_profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of llama.cpp that is not the CPU, as the build lists it: the same GPU may be there under two names.

    `memory_bytes` is what the device says it has in all. `bus_id` is its place on the PCI bus where the back
    end tells it; `unified` says that it computes from the machine's own memory.
    """

    name: str
    description: str
    memory_bytes: int | None = None
    bus_id: str | None = None
    unified: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreType:
    """All cores of one design: `key` identifies it, `kind` is "performance" or "efficiency" where there are both.

    The key is family-model-stepping on x86, implementer-part-variant on ARM, the processor's version or machine
    type on POWER and mainframes, and the brand with the performance level on Apple's chips.
    """

    vendor: str | None = None
    key: str | None = None
    name: str | None = None
    kind: str | None = None
    n_cores: int | None = None
    threads_per_core: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """All instances of one cache level together: `size_bytes` is that of one instance.

    Where cores of two types have caches of two sizes, the level is there twice. `kind` is "data", "instruction",
    "unified", or "memory-side" for fast memory in front of slower memory.
    """

    level: int
    kind: str
    size_bytes: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Numa:
    """A memory node: its CPUs that are online (0 for memory of its own kind) and its memory in whole GiB."""

    n_cpus: int
    memory_gib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the machine is made of; unknown is None. Nothing here changes with a reinstall or a kernel.

    `chassis` is the kind of its case: "portable", "desktop", "server" or "other".
    """

    arch: str
    cpu_name: str | None = None
    cpu_vendor: str | None = None
    n_packages: int | None = None
    n_cores_physical: int | None = None
    n_cores_logical: int | None = None
    isa: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()
    core_types: tuple[CoreType, ...] = ()
    numa: tuple[Numa, ...] = ()
    memory_gib: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_status: str = "unknown"
    product_name: str | None = None
    hypervisor: str | None = None
    chassis: str | None = None

    @property
    def hardware_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema.

        Left out is what root alone, a driver or the firmware's tables tell (product, case, hypervisor, a GPU's name),
        and the names that tables of ours give to a processor: the keys of its core types stand for them.
        """
        left_out = {"product_name", "hypervisor", "chassis", "core_types", "gpus"}
        if self.arch.startswith(("aarch64", "arm", "s390")) and all(one.key for one in self.core_types):
            left_out |= {"cpu_name", "cpu_vendor"} if self.core_types else set()
        facts = {key: value for key, value in asdict(self).items() if key not in left_out}
        gpus = sorted((list(gpu.hardware_facts) for gpu in self.gpus), key=str)
        return digest(["hardware", 2, facts, self._core_type_facts(), gpus])[:32]

    def _core_type_facts(self) -> list[list[str | int | None]]:
        """Return the core types by their keys; the kind counts only where two have one key, as on Intel's hybrids."""
        keys = [one.key or one.name for one in self.core_types]
        facts = [
            [key, one.kind if keys.count(key) > 1 else None, one.n_cores, one.threads_per_core]
            for key, one in zip(keys, self.core_types, strict=True)
        ]
        return sorted(facts, key=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How much of the hardware this process may use.

    A limit that is None is absent where `Fingerprint.sources` says who told, and unknown where `errors` names it.
    `cpus_by_type` counts the usable CPUs by the name of their core type. `container` is "none" outside of one.
    """

    n_cpus: int | None = None
    cpu_quota_cores: float | None = None
    memory_limit_bytes: int | None = None
    container: str | None = None
    cpus_by_type: dict[str, int] = field(default_factory=dict)
    n_numa_nodes: int | None = None
    n_gpus: int | None = None

    @property
    def allocation_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema."""
        return digest(["allocation", 2, asdict(self)])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The software and the settings of the machine that can change a rate; the build of llama.cpp is apart.

    Where CPUs differ, their answers are joined by `+`. `turbo` and `smt` are "on", "off" or what the kernel says
    of them. `mitigations` lists what is not plain "Not affected"; it is "none" where everything is. `page_bytes`
    is the size of an ordinary page, `power_limit_watts` the processors' long-term limit, all packages together.
    `gpu_runtime` names CUDA, ROCm or the like; `gpu_settings` is what an administrator set on the GPUs, such as their
    performance level and power limit.
    """

    os: str | None = None
    kernel: str | None = None
    libc: str | None = None
    python: str | None = None
    governor: str | None = None
    gpu_driver: str | None = None
    scaling_driver: str | None = None
    energy_preference: str | None = None
    turbo: str | None = None
    smt: str | None = None
    microcode: str | None = None
    bios_version: str | None = None
    mitigations: str | None = None
    huge_pages: str | None = None
    page_bytes: int | None = None
    power_limit_watts: float | None = None
    gpu_runtime: str | None = None
    gpu_settings: str | None = None

    @property
    def environment_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema."""
        return digest(["environment", 2, asdict(self)])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModules:
    """The memory modules as the firmware describes them; often only root can read it, so no id holds any of this.

    `source` says who told. `kind` is such as "DDR5", `configured_mts` the transfers per second (in millions) that
    the slowest module is set to, `module_bytes` the size of each. `bus_bits` is the width of all channels together,
    None where the channels are not named: modules alone do not tell how many channels there are.
    """

    source: str
    kind: str | None = None
    n_modules: int | None = None
    n_slots: int | None = None
    module_bytes: tuple[int, ...] = ()
    configured_mts: int | None = None
    n_channels: int | None = None
    bus_bits: int | None = None

    @property
    def theoretical_bandwidth_bytes_per_second(self) -> int | None:
        """Transfers × width of all channels; None where either is not known."""
        if not self.configured_mts or not self.bus_bits:
            return None
        return self.configured_mts * 1_000_000 * self.bus_bits // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How the machine was at the moment of the fingerprint; no id holds any of this, and None is not known.

    `…_pressure_percent` is the share of the last ten seconds in which some task waited for CPU, memory or disk.
    """

    load1: float | None = None
    load5: float | None = None
    load15: float | None = None
    cpu_pressure_percent: float | None = None
    memory_pressure_percent: float | None = None
    io_pressure_percent: float | None = None
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    uptime_seconds: float | None = None
    on_battery: bool | None = None
    power_profile: str | None = None
    hottest_celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What only one machine has, each as a keyed hash, to tell it from a copy of its files; no id holds any of this.

    `machine_id` and `root_uuid` belong to the installed system, the others to the machine. Addresses that software
    made up (`weak_macs`) are the same on many machines. `boot_id` is kept as it is: it is random and ends with the
    boot, which lasted at least from `booted_at` to `seen_at` (UTC).
    """

    machine_id: str | None = None
    root_uuid: str | None = None
    product_uuid: str | None = None
    board_serial: str | None = None
    instance_id: str | None = None
    gpu_uuids: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    weak_macs: tuple[str, ...] = ()
    boot_id: str | None = None
    booted_at: str | None = None
    seen_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """llama.cpp as it can be run here."""

    binding: str
    llama_cpp_commit: str | None = None
    library_sha256: str | None = None
    system_info: str | None = None
    cmake_args: str | None = None
    compiler: str | None = None
    backends: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    gpu_offload: bool = False
    method: str = "llama-cpp-python"
    offload_devices: tuple[Device, ...] = ()

    @property
    def build_id(self) -> str:
        """Digest of what was built and how: the same on two machines that were built alike.

        The file's own digest and the devices are left out: paths and names of one machine are in them. Of a
        llama-bench, which may not even know its commit, the file's digest is the best that there is.
        """
        of_one_machine = ("devices", "offload_devices")
        left_out = of_one_machine if self.method == "llama-bench" else ("library_sha256", *of_one_machine)
        facts = {key: value for key, value in asdict(self).items() if key not in left_out}
        return digest(["build", 1, facts])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Everything known of a host at one moment; a fact that could not be had is named in `errors`.

    `cloned_from` is the host whose home was found here although this is another machine; `probable_same_as` the
    host that this machine may have been before it was installed anew.
    """

    host_uid: str
    uid_source: str
    hostname: str
    taken_at: str
    hardware: Hardware
    allocation: Allocation
    environment: Environment
    build: Build | None = None
    sources: dict[str, str] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    state: State | None = None
    memory_modules: MemoryModules | None = None
    evidence: Evidence | None = None
    cloned_from: str | None = None
    probable_same_as: str | None = None
