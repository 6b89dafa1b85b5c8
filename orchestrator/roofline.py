"""How close a rate comes to what the hardware can do (pure).

Decoding a token reads every active weight once, and the keys and values of its context. A machine that reads B
bytes a second can therefore not decode more than B ÷ bytes tokens a second: that is the ceiling, and `mbu`
(memory bandwidth utilisation) is the rate as a share of it. A prompt is computed many tokens at once; `mfu` is its
2 × parameters × rate as a share of what the same threads did in an f32 matrix product. That is a proxy:
quantised kernels use other instructions, so it compares machines and is no ceiling.

No share is ever clipped. Above 1 something is not as assumed, and `tokfleet results --explain` says what may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.token_traffic import Traffic, decode_traffic, pass_bytes
from schema.job import Test
from schema.probe import Probe
from schema.record import ModelFacts
from worker.probe.estimate import core_limited

Bound = Literal["memory", "cores", "cache"]
Place = Literal["cpu", "gpu"]

BEYOND_DOUBT = 1.05
"""Two measurements of the same thing differ by so much; a share above it says that one of them was not of that."""

MEMORY_MBU = 0.7
"""From this share of the bandwidth on, waiting for memory is most of a token's time."""

STILL_RISES = 1.1
"""More threads that read more than this many times as much show that at fewer threads the memory was not the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What an attempt measured, in tokens per second of all sequences, and the settings that its roof depends on.

    `place` is where weights and cache lay, None for several places or an unknown one. `prompt_on_cpu`: no other
    device had a part in the prompt. `undisturbed`: nothing was seen that would have made it much slower.
    """

    test: Test
    prompt_ts: float | None = None
    gen_ts: float | None = None
    n_threads: int | None = None
    n_threads_batch: int | None = None
    n_ubatch: int | None = None
    type_k: str = "f16"
    type_v: str = "f16"
    place: Place | None = "cpu"
    prompt_on_cpu: bool = True
    undisturbed: bool = True

    @property
    def prompt_threads(self) -> int | None:
        """How many threads computed the prompt."""
        return self.n_threads_batch or self.n_threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is known of the machine at the time: probes that fit the attempt, and the bytes of its last-level caches.

    `reading` gave the bandwidth, `curve` is the newest one with several numbers of threads.
    """

    reading: Probe | None = None
    curve: Probe | None = None
    gemm: Probe | None = None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A result beside the limits of its machine; what cannot be told is None."""

    bytes_per_token: float | None = None
    kv_bytes_per_token: float | None = None
    read_bytes_per_s: float | None = None
    ceiling_ts: float | None = None
    mbu: float | None = None
    flop_per_s: float | None = None
    mfu: float | None = None
    bound: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """An attempt beside the limits of its machine, and all that they were computed from."""

    rates: Rates
    model: ModelFacts | None
    machine: Machine
    roof: Roof

    @property
    def probe_uid(self) -> str | None:
        """The probe that a share was taken of, of a combined test the one of its decode."""
        if self.roof.mbu is not None and self.machine.reading:
            return self.machine.reading.probe_uid
        return self.machine.gemm.probe_uid if self.roof.mfu is not None and self.machine.gemm else None


def roof(rates: Rates, model: ModelFacts | None, machine: Machine) -> Roof:
    """Return how close `rates` came to the limits of `machine`."""
    traffic = decode_traffic(model, rates.test, rates.type_k, rates.type_v) if model else None
    reading = _reading(rates, machine)
    gemm = _gemm(rates, machine)
    mbu = ceiling = mfu = None
    if traffic and reading:
        ceiling = reading / traffic.total
        mbu = rates.gen_ts / ceiling if rates.gen_ts else None
    if gemm and rates.prompt_ts and model and model.prompt_params:
        mfu = 2 * model.prompt_params * rates.prompt_ts / gemm
    return Roof(
        bytes_per_token=traffic.total if traffic else None,
        kv_bytes_per_token=traffic.cache if traffic else None,
        read_bytes_per_s=reading,
        ceiling_ts=ceiling,
        mbu=mbu,
        flop_per_s=gemm,
        mfu=mfu,
        bound=_bound(rates, model, machine, traffic, mbu, mfu),
    )


def between(curve: Mapping[int, float], n_threads: int | None) -> float | None:
    """Return the value for `n_threads`: measured, or on the line between the two measured beside it; else None."""
    if n_threads is None:
        return None
    below = max((n for n in curve if n <= n_threads), default=None)
    above = min((n for n in curve if n >= n_threads), default=None)
    if below is None or above is None:
        return None
    if below == above:
        return curve[below]
    return curve[below] + (curve[above] - curve[below]) * (n_threads - below) / (above - below)


def gemm_curve(probe: Probe) -> dict[int, float]:
    """Return FLOP per second by number of threads, as far as the probe has them."""
    curve: dict[int, float] = {}
    single = probe.details.get("flops_1_thread")
    if isinstance(single, int | float):
        curve[1] = float(single)
    if probe.value and probe.n_threads:
        curve[probe.n_threads] = probe.value
    return curve


def limit_of_reading(probe: Probe | None, n_threads: int | None) -> Literal["memory", "cores"] | None:
    """Return what the probe's curve says limits reading with so many threads; None where it does not say.

    `cores`: threads add up as far as there are cores, or more of them read more. `memory`: they read no more.
    """
    curve = probe.curve() if probe else {}
    here = between(curve, n_threads)
    if probe is None or here is None or n_threads is None:
        return None
    add_up = core_limited(curve, None) if probe.core_limited is None else probe.core_limited
    more = [value for n, value in curve.items() if n > n_threads]
    if add_up or (more and max(more) > STILL_RISES * here):
        return "cores"
    return "memory" if more or probe.saturated else None


def fits_caches(traffic: Traffic | None, cache_bytes: int | None) -> bool:
    """Tell whether all that a pass reads stays in the caches: then memory has no part in its rate."""
    return traffic is not None and cache_bytes is not None and traffic.n_together * traffic.total <= cache_bytes


def reading_probe(probes: Sequence[Probe], series_uid: str | None, n_threads: int | None) -> Probe | None:
    """Return the probe whose bandwidth counts for an attempt; `probes` are newest first, none later but its series'.

    Those around its own series come first, and of the two the one that read more, since what disturbs a probe
    makes it read less. Else it is the newest before the attempt that has an answer for its number of threads.
    """
    fitting = [probe for probe in probes if _value(probe, n_threads) is not None]
    own = [probe for probe in fitting if series_uid is not None and probe.series_uid == series_uid]
    if own:
        return max(own, key=lambda probe: _value(probe, n_threads) or 0.0)
    return next(iter(fitting), None)


def curve_probe(probes: Sequence[Probe]) -> Probe | None:
    """Return which of `probes` (newest first) shows what more threads would do.

    The newest with several numbers of threads, of those around no series where there is one: it has all the numbers.
    """
    several = [probe for probe in probes if len(probe.curve()) > 1]
    return next((probe for probe in several if probe.series_uid is None), next(iter(several or probes), None))


def _value(probe: Probe, n_threads: int | None) -> float | None:
    return probe.value if probe.kind == "gpu_memory" else between(probe.curve(), n_threads)


def _reading(rates: Rates, machine: Machine) -> float | None:
    """Return bytes per second; of a GPU's memory only where all layers lie there, of both together never."""
    fits = {"cpu": "memory_read", "gpu": "gpu_memory"}.get(rates.place or "")
    if machine.reading is None or machine.reading.kind != fits:
        return None
    return _value(machine.reading, rates.n_threads) or None


def _gemm(rates: Rates, machine: Machine) -> float | None:
    if machine.gemm is None or not rates.prompt_on_cpu:
        return None
    return between(gemm_curve(machine.gemm), rates.prompt_threads) or None


def _bound(
    rates: Rates,
    model: ModelFacts | None,
    machine: Machine,
    traffic: Traffic | None,
    mbu: float | None,
    mfu: float | None,
) -> Bound | None:
    if traffic is None:
        return _prefill_bound(rates, model, machine, mfu)
    if rates.place == "cpu" and fits_caches(traffic, machine.cache_bytes):
        return "cache"
    if mbu is None or mbu > BEYOND_DOUBT:
        return None
    if mbu < MEMORY_MBU and (not rates.undisturbed or rates.place != "cpu"):
        return None  # a low share in a disturbed moment is not the machine's own; of a GPU we know no other limit
    if rates.place == "cpu" and limit_of_reading(machine.curve, rates.n_threads) == "cores":
        return "cores"
    return "memory" if mbu >= MEMORY_MBU else "cores"


def _prefill_bound(rates: Rates, model: ModelFacts | None, machine: Machine, mfu: float | None) -> Bound | None:
    """A prompt is bound by the cores, except a short one: reading the weights for a few tokens takes as long."""
    if model is None or not rates.prompt_ts or not rates.prompt_on_cpu:
        return None
    n_tokens = min(rates.test.n_prompt * rates.test.n_parallel, rates.n_ubatch or rates.test.n_prompt)
    weights, n_threads = pass_bytes(model, n_tokens), rates.prompt_threads
    reading = between(machine.reading.curve(), n_threads) if machine.reading else None
    if weights and reading and rates.prompt_ts * weights / n_tokens >= MEMORY_MBU * reading:
        return "cores" if limit_of_reading(machine.curve, n_threads) == "cores" else "memory"
    return "cores" if mfu is not None else None
