"""What bounded one result, in sentences with the arithmetic (pure)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.report import duration, minute, model_of, rate_text
from orchestrator.roofline import BEYOND_DOUBT, MEMORY_MBU, Limits, gemm_curve, limit_of_reading
from orchestrator.tables import escape
from orchestrator.token_traffic import mean_context, pass_bytes
from schema.host import MemoryModules
from schema.probe import Probe

Row = Mapping[str, Any]

NO_PROBE = "No probe of this machine came before this result: `tokfleet probe` measures what its ceiling is taken of."


def explain(row: Row, limits: Limits | None = None, modules: MemoryModules | None = None) -> list[str]:
    """Return what a row of `results` (or of `failures`) came to and why, a paragraph in each text."""
    if limits is None:
        return [f"{_what(row)} failed in the stage {row.get('stage')}: {escape(str(row.get('message')))}"]
    return [
        _headline(row),
        *_decode(limits, modules),
        *_prefill(limits),
        _bound(limits),
        *_quality(row),
        *_energy(row),
    ]


def size(n_bytes: float) -> str:
    """Return bytes as people read them: `2.81 GB`, `8.4 MB`, `512 B`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n_bytes >= 0.1 * unit:
            return f"{n_bytes / unit:.2f} {name}" if n_bytes < 10 * unit else f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes:.0f} B"


def _headline(row: Row) -> str:
    rate = rate_text(row.get("avg_ts"), row.get("stddev_ts"), True)
    return f"{_what(row)}, {minute(row.get('test_time'))}: {rate} t/s over {row.get('n_samples')} repetitions."


def _what(row: Row) -> str:
    return escape(f"{model_of(row)} {row.get('test')} on {row.get('host') or row.get('host_uid')}")


def _decode(limits: Limits, modules: MemoryModules | None) -> Iterator[str]:
    rates, found = limits.rates, limits.roof
    if not (rates.test.n_gen or rates.test.n_verify):
        return
    if found.bytes_per_token is None:
        yield "What a token reads is not known: the header of the model file was not stored with this result."
        return
    yield f"{_reading_of_a_token(limits)}{_sharing(limits)}"
    reading = limits.machine.reading
    if found.ceiling_ts is None or reading is None:
        yield _why_no_ceiling(limits)
        return
    bandwidth = found.read_bytes_per_s or 0.0
    share = f" {rate_text(rates.gen_ts)} t/s is {found.mbu:.2f} of that." if found.mbu is not None else ""
    yield (
        f"{_reader(limits)} {bandwidth / 1e9:.1f} GB/s ({_source(reading, rates.n_threads)}), and "
        f"{bandwidth / 1e9:.1f} GB/s ÷ {size(found.bytes_per_token)} = {rate_text(found.ceiling_ts)} t/s is the "
        f"ceiling.{share}"
    )
    theory = modules.theoretical_bandwidth_bytes_per_second if modules and rates.place == "cpu" else None
    if theory:
        yield f"The memory modules could deliver {theory / 1e9:.1f} GB/s in theory."


def _reading_of_a_token(limits: Limits) -> str:
    rates, found = limits.rates, limits.roof
    total, cache = found.bytes_per_token or 0.0, found.kv_bytes_per_token
    if cache is None:
        return f"A token reads {size(total)} of weights, and keys and values whose size the header does not tell."
    context = f"{mean_context(rates.test):.0f} tokens of context in the mean, {rates.type_k}/{rates.type_v}"
    both = f"{size(total - cache)} of weights, {size(cache)} of keys and values ({context})"
    return f"A token reads {size(total)}: {both}."


def _sharing(limits: Limits) -> str:
    test, model = limits.rates.test, limits.model
    texts = []
    together = test.n_verify or test.n_parallel
    if together > 1 and model:
        whole = pass_bytes(model, together) or 0.0
        texts.append(f"{together} tokens share each reading of the weights ({size(whole)}).")
    if model and model.n_expert and model.n_expert_used:
        texts.append(f"Of the experts {model.n_expert_used} of {model.n_expert} count for each token.")
    return "".join(f" {text}" for text in texts)


def _why_no_ceiling(limits: Limits) -> str:
    if limits.rates.place is None:
        return "Weights or cache lay in several memories, or it is not known where, so no one bandwidth is the ceiling."
    if limits.machine.curve is not None:
        numbers = ", ".join(map(str, limits.machine.curve.curve()))
        return f"No probe before this result measured {limits.rates.n_threads} threads (but {numbers}): no ceiling."
    return NO_PROBE


def _reader(limits: Limits) -> str:
    if limits.rates.place == "gpu":
        return "The GPU reads"
    n = limits.rates.n_threads
    return f"With {n} thread{'s' * (n != 1)} this machine reads"


def _source(probe: Probe, n_threads: int | None) -> str:
    words = [f"probe {minute(probe.taken_at)}"]
    if probe.theoretical:
        words.append(f"{probe.method}, computed, not measured")
    elif n_threads not in probe.curve():
        words.append("between two measured numbers of threads")
    if probe.contended:
        words.append("itself disturbed")
    return ", ".join(words)


def _prefill(limits: Limits) -> Iterator[str]:
    rates, model, found = limits.rates, limits.model, limits.roof
    if not rates.prompt_ts or model is None or not model.prompt_params:
        return
    flops = 2 * model.prompt_params * rates.prompt_ts
    text = (
        f"A token of the prompt takes 2 × {model.prompt_params / 1e9:.2f} G parameters; at "
        f"{rate_text(rates.prompt_ts)} t/s that is {flops / 1e9:.0f} GFLOP/s"
    )
    gemm = limits.machine.gemm
    if found.mfu is None or gemm is None or found.flop_per_s is None:
        yield f"{text}. What this machine can compute was not measured before: `tokfleet probe` does."
        return
    threads = rates.prompt_threads
    made = "" if threads in gemm_curve(gemm) else ", between two measured numbers of threads"
    yield (
        f"{text}, {found.mfu:.2f} of the {found.flop_per_s / 1e9:.0f} GFLOP/s of an f32 matrix product with {threads} "
        f"threads (probe {minute(gemm.taken_at)}{made}). That is a proxy, since quantised weights are "
        "computed otherwise, and may be above 1."
    )


def _bound(limits: Limits) -> str:
    found = limits.roof
    if found.mbu is not None and found.mbu > BEYOND_DOUBT and found.bound != "cache":
        return _too_fast(limits)
    if found.bound == "cache":
        return (
            f"Bound by: the caches. All that a pass reads fits into them ({size(limits.machine.cache_bytes or 0)}), so "
            "the memory has no part in this rate, and a share of its bandwidth says nothing."
        )
    if found.bound == "memory":
        return f"Bound by: memory. {_curve(limits) or 'Waiting for the memory is most of the time of a token.'}"
    if found.bound == "cores":
        return f"Bound by: the cores. {_why_cores(limits)}"
    return f"Bound by: not known. {_why_unknown(limits)}"


def _why_cores(limits: Limits) -> str:
    if limits.roof.bytes_per_token is None:
        return "Many tokens are computed for each reading of the weights, so more or faster cores would help."
    share = limits.roof.mbu or 0.0
    texts = [_curve(limits)] if limit_of_reading(limits.machine.curve, limits.rates.n_threads) == "cores" else []
    if share < MEMORY_MBU:
        texts.append(f"Reading alone would take {share:.0%} of a token's time; computing takes the rest.")
    return " ".join(texts)


def _curve(limits: Limits) -> str:
    """Return what the probe's curve says, or nothing where it has no say."""
    probe, n = limits.machine.curve, limits.rates.n_threads
    limit = limit_of_reading(probe, n)
    if probe is None or limit is None or limits.rates.place != "cpu":
        return ""
    points = ", ".join(f"{value / 1e9:.1f} with {threads}" for threads, value in probe.curve().items())
    if limit == "cores":
        return f"Reading still grows with the threads ({points}; GB/s): the memory has more for more cores."
    return f"Further threads read hardly more than {n} ({points}; GB/s): the memory gives no more."


def _why_unknown(limits: Limits) -> str:
    mbu = limits.roof.mbu
    if mbu is None:
        return "Without a share of the ceiling nothing can be said."
    if not limits.rates.undisturbed:
        return "The machine was disturbed, so the low share may not be its own."
    return "It is far from the bandwidth, and what else limits this device is not measured."


def _too_fast(limits: Limits) -> str:
    mbu, traffic = limits.roof.mbu or 0.0, limits.roof.bytes_per_token or 0.0
    texts = [f"Bound by: not known. A share of {mbu:.2f} cannot be: one of the two figures is not what it seems."]
    caches = limits.machine.cache_bytes
    if caches:
        times = f"{traffic / caches:.1f} times what the caches hold ({size(caches)})"
        texts.append(f"A token reads {times}; the nearer that is to 1, the more of it came from there.")
    probe = limits.machine.reading
    if probe and probe.contended:
        texts.append("The probe was disturbed by others, so it read less than the machine can.")
    else:
        texts.append("Or the probe was disturbed unseen, as by a neighbour on the same hardware: probe again.")
    if limits.roof.kv_bytes_per_token and limits.roof.kv_bytes_per_token > traffic / 2:
        texts.append("Or the cache of this architecture is smaller than its header lets one think.")
    return " ".join(texts)


def _quality(row: Row) -> Iterator[str]:
    reasons = _listed(row.get("quality_reasons"))
    if row.get("quality") is None:
        yield "How quiet the machine was is not known" + (f"; {'; '.join(reasons)}." if reasons else ".")
    else:
        yield f"The machine was {row['quality']}" + (f": {'; '.join(reasons)}." if reasons else ".")


def _energy(row: Row) -> Iterator[str]:
    total, idle = row.get("joules_total"), row.get("joules_idle")
    if total is None:
        return
    texts = [f"{total:.1f} J in {duration(row.get('energy_seconds') or 0)} ({row.get('energy_method')}"]
    texts.append(f", of which idle takes {idle:.1f} J)" if idle is not None else ")")
    each = [
        f"{row[name]:.3g} J for each {what} token"
        for name, what in (("joules_per_prefill_token", "prompt"), ("joules_per_decoded_token", "decoded"))
        if row.get(name) is not None
    ]
    doubt = "" if row.get("energy_valid") else f"; not to be trusted: {row.get('energy_reason') or 'no reason known'}"
    yield f"Energy: {''.join(texts)}{', ' * bool(each)}{', '.join(each)}{doubt}."


def _listed(value: Any) -> list[str]:
    items = json.loads(value) if isinstance(value, str) else value
    return [escape(str(item)) for item in items or ()]
