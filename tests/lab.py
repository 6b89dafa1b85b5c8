"""A small lab's results of three nights, the same on every database: what docs/sql.md asks its questions of."""

from collections.abc import Iterator
from typing import Any

from orchestrator.store import Store
from schema.host import Environment, Fingerprint, Gpu
from schema.job import Job, ModelRef, Test
from schema.record import Conditions, Effective, Energy, Failure, ModelFacts, Record, Sample
from schema.settings import Settings
from tests.factories import (
    make_build,
    make_curve,
    make_failure,
    make_fingerprint,
    make_hardware,
    make_model_facts,
    make_probe,
    make_record,
    make_run,
)

PREFILL, DECODE, BOTH = Test(n_prompt=512, n_gen=0), Test(n_prompt=0, n_gen=128), Test(n_prompt=512, n_gen=128)

GEMMA = make_model_facts(
    sha256="1" * 64,
    filename="/srv/models/gemma-3-270m-Q4_K_M.gguf",
    synthetic=False,
    model_type="gemma3 270M Q4_K - Medium",
    model_size=245_000_000,
    model_n_params=268_000_000,
    architecture="gemma3",
    weight_bytes_per_token=240_000_000,
    key_width=2048,
    value_width=2048,
)
LLAMA = make_model_facts(
    sha256="2" * 64,
    filename="/srv/models/llama-3.2-1b-Q4_K_M.gguf",
    synthetic=False,
    model_type="llama 1B Q4_K - Medium",
    model_size=800_000_000,
    model_n_params=1_236_000_000,
    weight_bytes_per_token=760_000_000,
    key_width=8192,
    value_width=8192,
    prompt_params=970_000_000,
)
PHI = make_model_facts(
    sha256="3" * 64,
    filename="/srv/models/phi-3-mini-Q4_K_M.gguf",
    synthetic=False,
    model_type="phi3 3B Q4_K - Medium",
    model_size=2_390_000_000,
    model_n_params=3_821_000_000,
    architecture="phi3",
    weight_bytes_per_token=2_300_000_000,
    key_width=98304,
    value_width=98304,
)

RATES: dict[str, dict[str, tuple[float, float]]] = {
    "attic": {GEMMA.sha256: (1900.0, 152.0), LLAMA.sha256: (410.0, 53.0), PHI.sha256: (130.0, 15.5)},
    "barn": {GEMMA.sha256: (9800.0, 310.0), LLAMA.sha256: (4100.0, 190.0), PHI.sha256: (1500.0, 80.0)},
    "cellar": {GEMMA.sha256: (700.0, 61.0), LLAMA.sha256: (150.0, 20.0), PHI.sha256: (44.0, 7.0)},
}
"""Prefill and decode, tokens per second, of each host and model."""

WATTS = {"attic": 88.0, "barn": 160.0}
NIGHTS = ("2026-01-05", "2026-01-06", "2026-01-07")
UPDATED = NIGHTS[2]
"""Before this night barn got another driver, with which it decodes by a tenth more slowly."""


def hosts(night: str) -> dict[str, Fingerprint]:
    """Return the three machines as they were on that night."""
    driver = "560.35.03" if night >= UPDATED else "550.90.07"
    linux: dict[str, Any] = {"python": "3.11.7", "governor": "performance"}
    taken: dict[str, Any] = {"taken_at": f"{night}T00:30:00Z"}
    return {
        "attic": make_fingerprint(
            host_uid="host-a",
            hostname="attic",
            hardware=make_hardware(gpus=(), gpu_status="none"),
            environment=Environment(os="Debian 12", kernel="6.1.0-18", **linux),
            build=make_build(),
            **taken,
        ),
        "barn": make_fingerprint(
            host_uid="host-b",
            hostname="barn",
            hardware=make_hardware(
                gpus=(Gpu(vendor="NVIDIA", name="NVIDIA GeForce RTX 3060", vram_bytes=12 * 1024**3),)
            ),
            environment=Environment(os="Ubuntu 24.04", kernel="6.8.0-45", gpu_driver=driver, **linux),
            build=make_build(backends=("CPU", "CUDA"), gpu_offload=True),
            **taken,
        ),
        "cellar": make_fingerprint(
            host_uid="host-c",
            hostname="cellar",
            hardware=make_hardware(
                cpu_name="Intel Core i7-1260P", n_cores_logical=16, memory_gib=16, gpus=(), gpu_status="none"
            ),
            environment=Environment(os="Fedora 43", kernel="6.17.4", python="3.13.1", governor="powersave"),
            build=make_build(),
            **taken,
        ),
    }


def fill(url: str) -> None:
    """Store the three nights at `url`, an empty store."""
    with Store.open(url) as store:
        for night in NIGHTS:
            machines = hosts(night)
            for fingerprint in machines.values():
                store.save_fingerprint(fingerprint)
            if night == NIGHTS[0]:
                for fingerprint in machines.values():
                    store.save_probe(_probe(fingerprint))
                store.save_probe(_gpu_memory(machines["barn"]))
            pairs = list(_attempts(night, machines))
            run = make_run(
                run_uid=f"night-{night}",
                name="nightly",
                created_at=f"{night}T00:55:00Z",
                tags={"sweep": "nightly", "room": "all"},
            )
            store.save_run(run, [job for job, _ in pairs])
            store.save_records([record for _, record in pairs])


def _probe(fingerprint: Fingerprint) -> Any:
    curve = {"attic": {1: 21e9, 8: 41e9}, "barn": {1: 22e9, 8: 45e9}, "cellar": {1: 12e9, 8: 17e9}}[
        fingerprint.hostname
    ]
    ids = {"hardware_id": fingerprint.hardware.hardware_id, "allocation_id": fingerprint.allocation.allocation_id}
    return make_curve(
        curve,
        probe_uid=f"probe-{fingerprint.hostname}",
        host_uid=fingerprint.host_uid,
        taken_at=fingerprint.taken_at,
        environment_id=fingerprint.environment.environment_id,
        core_limited=False,
        saturated=True,
        **ids,
    )


def _gpu_memory(fingerprint: Fingerprint) -> Any:
    return make_probe(
        kind="gpu_memory",
        probe_uid="probe-gpu",
        host_uid=fingerprint.host_uid,
        taken_at=fingerprint.taken_at,
        value=360e9,
        theoretical=True,
        method="bus width × clock",
        hardware_id=fingerprint.hardware.hardware_id,
        allocation_id=fingerprint.allocation.allocation_id,
        environment_id=fingerprint.environment.environment_id,
    )


def _attempts(night: str, machines: dict[str, Fingerprint]) -> Iterator[tuple[Job, Record]]:
    for number, fingerprint in enumerate(machines.values()):
        minute = 0
        for facts in (GEMMA, LLAMA, PHI):
            for test in (PREFILL, DECODE, BOTH):
                yield _attempt(night, fingerprint, facts, test, Settings(flash_attn="on"), minute, number)
                minute += 1
        for threads in (2, 4):
            settings = Settings(flash_attn="on", n_threads=threads)
            yield _attempt(night, fingerprint, LLAMA, DECODE, settings, minute, number)
            minute += 1


def _attempt(
    night: str, fingerprint: Fingerprint, facts: ModelFacts, test: Test, settings: Settings, minute: int, number: int
) -> tuple[Job, Record]:
    model = ModelRef(source="path", spec=facts.filename, identity=f"sha256:{facts.sha256}")
    job = Job(run_uid=f"night-{night}", host_uid=fingerprint.host_uid, model=model, test=test, settings=settings)
    threads = settings.n_threads if isinstance(settings.n_threads, int) else 8
    on_gpu = fingerprint.hostname == "barn"
    failure = _failure(night, fingerprint.hostname, facts, test)
    record = make_record(
        job,
        attempt_uid=f"{night}-{fingerprint.hostname}-{minute:02d}",
        started_at=f"{night}T01:{minute:02d}:{10 * number:02d}Z",
        ended_at=f"{night}T01:{minute:02d}:{10 * number + 9:02d}Z",
        failure=failure,
        samples=() if failure else _samples(night, fingerprint.hostname, facts, test, threads),
        in_effect={
            "n_batch": Effective(value=640 if test == BOTH else 512 if test == PREFILL else 256, source="getter"),
            "n_ubatch": Effective(value=512 if test != DECODE else 256, source="getter"),
            "n_threads": Effective(value=threads, source="getter"),
            "type_k": Effective(value="f16", source="log"),
            "type_v": Effective(value="f16", source="log"),
            "flash_attn": Effective(value="on", source="log"),
            "n_gpu_layers": Effective(value=99 if on_gpu else 0, source="devices"),
            "load_mode": Effective(value="mmap", source="maps"),
        },
        resolved={"n_threads": threads, "n_gpu_layers": 99 if on_gpu else 0},
        model=facts,
        latency=None,
        first_token_ns=_first_token_ns(fingerprint.hostname, facts) if test == BOTH and not failure else None,
        hardware_id=fingerprint.hardware.hardware_id,
        allocation_id=fingerprint.allocation.allocation_id,
        environment_id=fingerprint.environment.environment_id,
        build_id=fingerprint.build.build_id if fingerprint.build else None,
        conditions=None if failure else _conditions(night, fingerprint.hostname, facts, test),
        quality=None if failure else "contended" if _is_disturbed(night, fingerprint.hostname, minute) else "clean",
    )
    return job, record


def _failure(night: str, host: str, facts: ModelFacts, test: Test) -> Failure | None:
    if night == NIGHTS[2] and host == "cellar" and facts == PHI:
        message = "The machine has 1.9 GiB free, and the model needs 2.4 GiB."
        return make_failure(stage="load", kind="oom", message=message)
    if night == NIGHTS[2] and host == "barn" and facts == GEMMA and test == PREFILL:
        message = "The measuring process was aborted by llama.cpp (SIGABRT)."
        return make_failure(stage="prefill", kind="abort", signal="SIGABRT", message=message)
    return None


def _rate(night: str, host: str, facts: ModelFacts, test: Test, threads: int) -> float:
    prefill, decode = RATES[host][facts.sha256]
    if host == "barn" and night >= UPDATED:
        decode *= 0.9
    return prefill if test == PREFILL else decode * min(1.0, 0.4 + threads / 13.0)


def _samples(night: str, host: str, facts: ModelFacts, test: Test, threads: int) -> tuple[Sample, ...]:
    spreads = (0.985, 1.0, 1.015, 0.995, 1.005)
    found = []
    for number, spread in enumerate(spreads):
        rate = _rate(night, host, facts, DECODE if test == BOTH else test, threads) * spread
        prompt_ns = round(1e9 * 512 / RATES[host][facts.sha256][0]) if test == BOTH else None
        gen_ns = round(1e9 * 128 / rate) if test == BOTH else None
        elapsed = prompt_ns + gen_ns if prompt_ns and gen_ns else round(1e9 * test.n_tokens / rate)
        found.append(
            Sample(
                repetition=number,
                n_tokens=test.n_tokens,
                elapsed_ns=elapsed,
                prompt_ns=prompt_ns,
                gen_ns=gen_ns,
                cpu_share=0.99,
            )
        )
    return tuple(found)


def _first_token_ns(host: str, facts: ModelFacts) -> int:
    prefill, decode = RATES[host][facts.sha256]
    return round(1e9 * (512 / prefill + 1 / decode))


def _conditions(night: str, host: str, facts: ModelFacts, test: Test) -> Conditions:
    watts = WATTS.get(host)
    energy = None
    if watts is not None and test in (PREFILL, DECODE):
        per_token = watts / _rate(night, host, facts, test, 8)
        energy = Energy(
            joules_total=watts * 9.0,
            joules_idle=20.0 * 9.0,
            seconds=9.0,
            method="rapl+gpu" if host == "barn" else "rapl",
            joules_per_prefill_token=per_token if test == PREFILL else None,
            joules_per_decoded_token=per_token if test == DECODE else None,
            valid=True,
        )
    return Conditions(cpu_share=0.99, others_busy_cores=0.1, major_faults=0, energy=energy)


def _is_disturbed(night: str, host: str, minute: int) -> bool:
    return host == "cellar" and (night == NIGHTS[1] or minute % 4 == 0)
