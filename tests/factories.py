"""Values with sensible defaults for tests; name a field to set it."""

import itertools
from typing import Any

from schema.host import Allocation, Build, Environment, Fingerprint, Gpu, Hardware
from schema.job import Job, ModelRef, Test
from schema.probe import Point, Probe
from schema.record import Conditions, Effective, Failure, Latency, ModelFacts, Placement, Record, Sample
from schema.run import Run
from schema.settings import Settings

MODEL = ModelRef(source="synthetic", spec="tiny:Q4_K_M", identity="synthetic:tiny:Q4_K_M:0:1")
_NUMBERS = itertools.count(1)


def make_run(**fields: Any) -> Run:
    """Return a run of a small sweep."""
    defaults: dict[str, Any] = {
        "run_uid": "run-1",
        "name": "smoke",
        "sweep_text": "name: smoke\n",
        "sweep_sha256": "a" * 64,
        "created_at": "2026-01-02T03:00:00Z",
        "tokfleet_version": "0.1.0",
    }
    return Run(**(defaults | fields))


def make_job(**fields: Any) -> Job:
    """Return a job: pp512 of a synthetic model, on `host-1` in `run-1`."""
    defaults: dict[str, Any] = {
        "run_uid": "run-1",
        "host_uid": "host-1",
        "model": MODEL,
        "test": Test(n_prompt=512, n_gen=0),
        "settings": Settings(),
    }
    return Job(**(defaults | fields))


def make_samples(test: Test, *elapsed_ns: int) -> tuple[Sample, ...]:
    """Return one sample of `test` for each time."""
    return tuple(
        Sample(repetition=number, n_tokens=test.n_tokens, elapsed_ns=ns, cpu_share=0.99)
        for number, ns in enumerate(elapsed_ns)
    )


def make_failure(**fields: Any) -> Failure:
    """Return a failure to load the model."""
    defaults: dict[str, Any] = {"stage": "load", "message": "The model could not be loaded.", "log_tail": ("no",)}
    return Failure(**(defaults | fields))


def make_record(job: Job | None = None, /, **fields: Any) -> Record:
    """Return a measured record of `job` with three samples; give `failure` for a failed one without."""
    job = job or make_job()
    failed = fields.get("failure") is not None
    fingerprint = make_fingerprint(host_uid=job.host_uid)
    defaults: dict[str, Any] = {
        "attempt_uid": f"attempt-1-of-{job.job_uid}",
        "job_uid": job.job_uid,
        "run_uid": job.run_uid,
        "host_uid": job.host_uid,
        "number": 1,
        "started_at": "2026-01-02T03:04:05.250000Z",
        "ended_at": "2026-01-02T03:04:15Z",
        "status": "failed" if failed else "measured",
        "samples": () if failed else make_samples(job.test, 500_000_000, 512_000_000, 524_000_000),
        "resolved": {"n_threads": 8, "n_gpu_layers": 0, "flash_attn": "on", "load_mode": "mmap", "n_batch": 2048},
        "in_effect": {
            "n_batch": Effective(value=2048, source="getter"),
            "n_ubatch": Effective(value=512, source="getter"),
            "n_threads": Effective(value=8, source="getter"),
            "flash_attn": Effective(value="on", source="log"),
            "n_gpu_layers": Effective(value=0, source="devices"),
            "load_mode": Effective(value="mmap", source="maps"),
        },
        "model": make_model_facts(),
        "latency": None if failed else make_latency(),
        "load_seconds": 1.5,
        "warmup_seconds": 0.5,
        "warmup_passes": 2,
        "hardware_id": fingerprint.hardware.hardware_id,
        "allocation_id": fingerprint.allocation.allocation_id,
        "environment_id": fingerprint.environment.environment_id,
        "build_id": fingerprint.build.build_id if fingerprint.build else None,
        "conditions": Conditions(cpu_share=0.98, others_busy_cores=0.1, major_faults=3),
        "placement": Placement(worker_pid=10, child_pid=11),
        "quality": "clean",
    }
    return Record(**(defaults | fields))


def make_latency(**fields: Any) -> Latency:
    """Return latencies around 10 ms."""
    defaults: dict[str, Any] = {
        "p50_ns": 10_000_000,
        "p95_ns": 12_000_000,
        "p99_ns": 13_000_000,
        "max_ns": 15_000_000,
        "histogram": tuple(128 if number == 26 else 0 for number in range(64)),
    }
    return Latency(**(defaults | fields))


def make_model_facts(**fields: Any) -> ModelFacts:
    """Return what a small synthetic model's file says of itself."""
    defaults: dict[str, Any] = {
        "sha256": "b" * 64,
        "filename": "/srv/models/tiny-Q4_K_M.gguf",
        "file_bytes": 1_000_000,
        "synthetic": True,
        "model_type": "llama 1B Q4_K - Medium",
        "model_size": 900_000,
        "model_n_params": 1_500_000,
        "architecture": "llama",
        "n_ctx_train": 4096,
    }
    return ModelFacts(**(defaults | fields))


def make_hardware(**fields: Any) -> Hardware:
    """Return a workstation with one GPU."""
    defaults: dict[str, Any] = {
        "arch": "x86_64",
        "cpu_name": "AMD Ryzen 9 5900X 12-Core Processor",
        "n_cores_physical": 12,
        "n_cores_logical": 24,
        "isa": ("avx2",),
        "memory_gib": 64,
        "gpus": (Gpu(vendor="nvidia", name="NVIDIA GeForce RTX 3060", vram_bytes=12 * 1024**3),),
        "gpu_status": "visible",
    }
    return Hardware(**(defaults | fields))


def make_probe(**fields: Any) -> Probe:
    """Return a probe of `host-1`, taken before anything else there: 40 GB/s with one thread, 60 with eight."""
    fingerprint = make_fingerprint()
    defaults: dict[str, Any] = {
        "probe_uid": f"probe-{next(_NUMBERS)}",
        "host_uid": fingerprint.host_uid,
        "taken_at": "2026-01-02T03:01:00Z",
        "kind": "memory_read",
        "method": "numpy dot",
        "version": 1,
        "hardware_id": fingerprint.hardware.hardware_id,
        "allocation_id": fingerprint.allocation.allocation_id,
        "environment_id": fingerprint.environment.environment_id,
    }
    if fields.get("kind", "memory_read") == "memory_read" and "points" not in fields:
        defaults |= {"points": (make_point(1, 40e9), make_point(8, 60e9)), "value": 60e9, "n_threads": 8}
    return Probe(**(defaults | fields))


def make_point(n_threads: int, bytes_per_s: float, **fields: Any) -> Point:
    """Return an undisturbed stretch of reading at this bandwidth."""
    names = ("p95", "max", "top", "median", "mean")
    defaults: dict[str, Any] = {
        "n_threads": n_threads,
        "kernel": "dot64",
        "working_set_bytes": 1 << 28,
        "seconds": 0.3,
        **{f"{name}_bytes_per_s": bytes_per_s for name in names},
        "min_cpu_share": 1.0,
    }
    return Point(**(defaults | fields))


def make_curve(curve: dict[int, float], **fields: Any) -> Probe:
    """Return a probe of reading that found these bytes per second by numbers of threads."""
    best = max(curve, key=lambda n: curve[n])
    points = tuple(make_point(n, value) for n, value in curve.items())
    return make_probe(points=points, value=curve[best], n_threads=best, **fields)


def make_gemm(value: float, n_threads: int, single: float | None = None, **fields: Any) -> Probe:
    """Return a probe of matrix products in FLOP per second, with `single` for one thread."""
    return make_probe(
        kind="gemm_f32", value=value, n_threads=n_threads, details={"flops_1_thread": single}, method="matmul", **fields
    )


def make_build(**fields: Any) -> Build:
    """Return llama-cpp-python with the CPU back end."""
    defaults: dict[str, Any] = {"binding": "0.3.36", "llama_cpp_commit": "0c1e57098", "backends": ("CPU",)}
    return Build(**(defaults | fields))


def make_fingerprint(**fields: Any) -> Fingerprint:
    """Return the fingerprint of `host-1`."""
    defaults: dict[str, Any] = {
        "host_uid": "host-1",
        "uid_source": "state file",
        "hostname": "box-a",
        "taken_at": "2026-01-02T03:00:00Z",
        "hardware": make_hardware(),
        "allocation": Allocation(n_cpus=24),
        "environment": Environment(os="Debian 12", kernel="6.1.0", python="3.11.7", governor="performance"),
        "build": make_build(),
        "sources": {"cpu_name": "/proc/cpuinfo"},
    }
    return Fingerprint(**(defaults | fields))


LLAMA_1B = make_model_facts(
    weight_bytes_per_token=760_000_000, key_width=8192, value_width=8192, prompt_params=970_000_000
)
LINEAR = make_curve({1: 38e9, 2: 76e9}, core_limited=True, saturated=False)
"""Two threads that read twice what one does: their cores are the limit."""

SATURATED = make_curve({1: 20e9, 4: 45e9, 8: 46e9}, core_limited=False, saturated=True)
