"""A machine as its own worker describes it: who, what it is made of, how much we may use, what runs on it."""

from dataclasses import asdict, dataclass, field

from schema.canonical import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One graphics processor visible to the driver."""

    vendor: str
    name: str
    vram_bytes: int | None = None
    pci_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """All instances of one cache level together: `size_bytes` is that of one instance."""

    level: int
    kind: str
    size_bytes: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What the machine is made of; unknown is None. Nothing here changes with a reinstall or a kernel."""

    arch: str
    cpu_name: str | None = None
    cpu_vendor: str | None = None
    n_packages: int | None = None
    n_cores_physical: int | None = None
    n_cores_logical: int | None = None
    isa: tuple[str, ...] = ()
    caches: tuple[Cache, ...] = ()
    memory_gib: int | None = None
    gpus: tuple[Gpu, ...] = ()
    gpu_status: str = "unknown"
    product_name: str | None = None
    hypervisor: str | None = None

    @property
    def hardware_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema."""
        return digest(["hardware", 1, asdict(self)])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """How much of the hardware this process may use."""

    n_cpus: int | None = None
    cpu_quota_cores: float | None = None
    memory_limit_bytes: int | None = None
    container: str | None = None

    @property
    def allocation_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema."""
        return digest(["allocation", 1, asdict(self)])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The software on the machine that can change a rate; the build of llama.cpp is apart."""

    os: str | None = None
    kernel: str | None = None
    libc: str | None = None
    python: str | None = None
    governor: str | None = None
    gpu_driver: str | None = None

    @property
    def environment_id(self) -> str:
        """Digest of exactly these facts, with the version of their schema."""
        return digest(["environment", 1, asdict(self)])[:32]


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

    @property
    def build_id(self) -> str:
        """Digest of what was built and how: the same on two machines that were built alike.

        The file's own digest and the devices are left out: paths and names of one machine are in them. Of a
        llama-bench, which may not even know its commit, the file's digest is the best that there is.
        """
        left_out = ("devices",) if self.method == "llama-bench" else ("library_sha256", "devices")
        facts = {key: value for key, value in asdict(self).items() if key not in left_out}
        return digest(["build", 1, facts])[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Everything known of a host at one moment; a fact that could not be had is named in `errors`."""

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
