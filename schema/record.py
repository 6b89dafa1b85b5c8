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

    `getter`, `log`, `buffers` (sizes of what was allocated, or where), `maps`, `devices`, `affinity`, `process`,
    `command` (that of the host's admin).
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
    """The file that was measured, as its bytes, its header and llama.cpp describe it.

    From `weight_bytes_per_token` on the header tells, and None means that it could not be read or does not say.
    `weight_bytes_per_token` are the weights that decoding one token reads, `expert_bytes` those of all routed
    experts together, `active_params` all parameters but those of the experts not used, `prompt_params` the
    active ones that every token of a prompt is multiplied with (no embedding, no output layer).
    `kv_bytes_per_context_token` is what a token of context takes in an F16 cache; the widths are the values of
    keys and values that a token of context has in all layers that see the whole of it, and in those (`window_…`)
    that see the last `sliding_window` tokens.
    """

    sha256: str
    filename: str
    file_bytes: int
    synthetic: bool
    model_type: str | None = None
    model_size: int | None = None
    model_n_params: int | None = None
    architecture: str | None = None
    n_ctx_train: int | None = None
    weight_bytes_per_token: int | None = None
    expert_bytes: int | None = None
    n_expert: int | None = None
    n_expert_used: int | None = None
    active_params: int | None = None
    prompt_params: int | None = None
    n_layer: int | None = None
    kv_bytes_per_context_token: int | None = None
    key_width: int | None = None
    value_width: int | None = None
    window_key_width: int | None = None
    window_value_width: int | None = None
    sliding_window: int | None = None


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
class Energy:
    """What the attempt took from the wall, as far as counters tell; `parts` has each counter's joules by its name.

    Counters are the machine's, not the process's: `valid` says whether the figures may stand for the test, and
    `reason` why not. `joules_idle` is what the machine, left alone, takes in the same `seconds`; it is part of
    `joules_total` and of the figures per token.
    """

    joules_total: float
    seconds: float
    method: str
    joules_idle: float | None = None
    joules_per_prefill_token: float | None = None
    joules_per_decoded_token: float | None = None
    parts: dict[str, float] = field(default_factory=dict)
    valid: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConditions:
    """How one GPU went while the attempt measured; None where its driver does not say. `index` is the driver's count.

    Clocks and power are of `n_looks` looks. `event_reasons` are the driver's words for why clocks were lower than
    they could be at any of them; `violation_ns` is how long each kind of limit held them down meanwhile. `others`
    are processes that were on the GPU and not ours, as "NAME (PID)". `energy_method` is "counter" or "power × time".
    """

    index: int
    name: str
    bus_id: str | None = None
    seconds: float | None = None
    n_looks: int | None = None
    sm_clock_hz_mean: float | None = None
    sm_clock_hz_min: int | None = None
    memory_clock_hz: int | None = None
    power_watts_mean: float | None = None
    energy_joules: float | None = None
    energy_method: str | None = None
    temperature_max_c: float | None = None
    memory_used_bytes_max: int | None = None
    event_reasons: tuple[str, ...] = ()
    violation_ns: dict[str, int] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    performance_state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How quiet the machine was while the attempt measured; None where not readable.

    Shares are of 1, counts are what was added while `watched_seconds` passed: the repetitions, without the time
    between them. Times of threads are of the `n_threads` that worked most. docs/conditions.md says where each is read.
    """

    cpu_share: float | None = None
    run_delay_share: float | None = None
    others_busy_cores: float | None = None
    steal_share: float | None = None
    major_faults: int | None = None
    load1_before: float | None = None
    available_bytes_before: int | None = None
    watched_seconds: float | None = None
    looks: int | None = None
    blocked_share: float | None = None
    times_stopped: int | None = None
    suspended_seconds: float | None = None
    cpu_pressure_share: float | None = None
    memory_pressure_share: float | None = None
    io_pressure_share: float | None = None
    swapped_in_pages: int | None = None
    swapped_out_bytes: int | None = None
    quota_throttles: int | None = None
    quota_throttled_seconds: float | None = None
    clock_start_hz: float | None = None
    clock_mean_hz: float | None = None
    clock_min_hz: float | None = None
    temperature_before_c: float | None = None
    temperature_max_c: float | None = None
    thermal_throttles: int | None = None
    thermal_throttled_seconds: float | None = None
    power_limit_throttles: int | None = None
    cooling_share: float | None = None
    firmware_flags: int | None = None
    on_battery: bool | None = None
    energy: Energy | None = None
    gpu: tuple[GpuConditions, ...] = ()


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
    series_uid: str | None = None
