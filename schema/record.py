"""What comes back for one attempt at a job: the samples, or the failure, and how it was made (stdlib only)."""

from dataclasses import dataclass, field
from typing import Literal

Value = int | float | str | bool | None

STAGES = (
    *("start", "model", "load", "context", "fill", "warmup", "prefill", "decode", "verify", "end"),
    *("interrupted", "host lost"),
)
"""Where an attempt can fail, in the order in which it passes through them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One repetition: tokens and monotonic nanoseconds of the timed window.

    `prompt_ns` is the part until the prompt's last token was processed, `gen_ns` the rest;
    NULL where the test has no such part.
    """

    repetition: int
    n_tokens: int
    elapsed_ns: int
    prompt_ns: int | None = None
    gen_ns: int | None = None
    cpu_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """A setting in effect and where it was read.

    `getter`, `log`, `buffers` (sizes of what was allocated, or where), `maps`, `devices`, `affinity`, `process`.
    """

    value: Value
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Decode latency per token over all repetitions, in ns; `histogram` has 64 log-spaced bins.

    Bin i counts latencies in [2^(i/2), 2^((i+1)/2)) microseconds, open at both ends of the range.
    """

    p50_ns: int
    p95_ns: int
    p99_ns: int
    max_ns: int
    histogram: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that the attempt took: the process's peak, and llama.cpp's buffers by the name of their kind.

    A name such as `CPU_Mapped`, `CPU_REPACK` or `CUDA0` says where a buffer lies.
    """

    peak_rss_bytes: int | None = None
    weights: dict[str, int] = field(default_factory=dict)
    cache: dict[str, int] = field(default_factory=dict)
    compute: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The file that was measured, as its bytes and llama.cpp describe it."""

    sha256: str
    filename: str
    file_bytes: int
    synthetic: bool
    model_type: str | None = None
    model_size: int | None = None
    model_n_params: int | None = None
    architecture: str | None = None
    n_ctx_train: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why an attempt has no result: the stage it was in, in words, and the last lines of the log."""

    stage: str
    message: str
    kind: str = "error"
    signal: str | None = None
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How quiet the machine was while the attempt measured (shares of 1; None where not readable)."""

    cpu_share: float | None = None
    run_delay_share: float | None = None
    others_busy_cores: float | None = None
    steal_share: float | None = None
    major_faults: int | None = None
    load1_before: float | None = None
    available_bytes_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Which process measured, under which Ray worker."""

    ray_node_id: str | None = None
    ray_task_id: str | None = None
    worker_pid: int | None = None
    child_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One attempt, whole: what the spool holds and the store writes. Times are UTC, ISO 8601 with `Z`."""

    attempt_uid: str
    job_uid: str
    run_uid: str
    host_uid: str
    number: int
    started_at: str
    ended_at: str
    status: Literal["measured", "failed"]
    samples: tuple[Sample, ...] = ()
    failure: Failure | None = None
    resolved: dict[str, Value] = field(default_factory=dict)
    in_effect: dict[str, Effective] = field(default_factory=dict)
    model: ModelFacts | None = None
    latency: Latency | None = None
    memory: Memory | None = None
    env: dict[str, str] = field(default_factory=dict)
    first_token_ns: int | None = None
    tokenize_ts: float | None = None
    load_seconds: float | None = None
    fill_seconds: float | None = None
    warmup_seconds: float | None = None
    warmup_passes: int | None = None
    hardware_id: str | None = None
    allocation_id: str | None = None
    environment_id: str | None = None
    build_id: str | None = None
    conditions: Conditions | None = None
    placement: Placement | None = None
    quality: str | None = None
    quality_reasons: tuple[str, ...] = ()
