"""A machine's probes as people read them: a curve, what stands beside it, and what it means (pure)."""

from collections.abc import Iterator, Mapping, Sequence

from schema.probe import Probe

BAR_CELLS = 40
FOUR_GB = 4e9
ENOUGH = 0.9
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def render(probes: Sequence[Probe], width: int | None = None) -> Iterator[str]:
    """Yield the lines that show the probes of one machine, bars and all within `width` columns."""
    for probe in probes:
        if probe.kind == "memory_read":
            yield from _read(probe, width)
        else:
            yield _line(probe)
    read = next((probe for probe in probes if probe.kind == "memory_read"), None)
    if read is not None:
        yield ""
        yield from verdict(read)
    for text in dict.fromkeys(error for probe in probes for error in probe.errors):
        yield f"Note: {text}."


def verdict(read: Probe) -> Iterator[str]:
    """Yield sentences on a read bandwidth: what limits it, what decoding can reach with it, what is doubtful of it."""
    curve = read.curve()
    if read.value is None or not curve:
        yield "The memory could not be read."
        return
    yield _limit(read, curve)
    yield (
        f"A model whose active weights take 4 GB decodes at most {read.value / FOUR_GB:.0f} tokens/s here "
        f"with {_threads(read.n_threads or 1)}."
    )
    if read.contended:
        shares = [point.min_cpu_share for point in read.points if point.min_cpu_share is not None]
        yield (
            f"Other work or a quota took CPUs meanwhile (a thread ran only {min(shares):.0%} of the time): the figures "
            "are the fastest moments. Try again on a quiet machine."
        )
    if read.cache_suspect:
        yield (
            "Twice the memory read slower: a cache that the system does not show took part. "
            "The figure is that of most memory."
        )


def _limit(read: Probe, curve: Mapping[int, float]) -> str:
    most = max(curve)
    if most == 1:
        return "There is one thread to read with, so nothing tells whether the core or the memory is the limit."
    if read.core_limited is None and read.saturated is None:
        return "Whether the cores or the memory are the limit cannot be told from this."
    best = max(curve, key=lambda n: curve[n])
    gain = _gain(curve, best) if best > 1 else ""
    if read.core_limited and not read.saturated:
        return f"{gain}: the cores are the limit, not the memory."
    if read.saturated:
        enough = min(n for n in curve if curve[n] >= ENOUGH * curve[best])
        reads = "reads" if enough == 1 else "read"
        whole = "nearly all" if curve[enough] < curve[best] else "all"
        return f"{_capital(_threads(enough))} {reads} {whole} that the memory gives: it is the limit, not the cores."
    return f"{gain}: the memory begins to be the limit."


def _gain(curve: Mapping[int, float], n_threads: int) -> str:
    if 1 not in curve:
        return f"{_capital(_threads(n_threads))} read most"
    times = curve[n_threads] / curve[1]
    words = {2: "twice one"}.get(n_threads) if abs(times - n_threads) <= 0.1 * n_threads else None
    return f"{_capital(_threads(n_threads))} give {words or f'{times:.1f} times one'}"


def _read(probe: Probe, width: int | None) -> Iterator[str]:
    size = max((point.working_set_bytes for point in probe.points), default=0)
    kernels = ", ".join(dict.fromkeys(point.kernel for point in probe.points))
    yield f"Reading memory ({kernels or 'nothing'}; up to {size / 2**20:.0f} MiB)"
    yield ""
    curve = probe.curve()
    cells = BAR_CELLS if width is None else max(4, min(BAR_CELLS, width - 20))
    yield "threads    GB/s"
    for n_threads, bytes_per_s in curve.items():
        filled = max(1, round(cells * bytes_per_s / max(curve.values())))
        yield f"{n_threads:7}  {bytes_per_s / 1e9:6.1f}  {'#' * filled}"
    yield ""


def _line(probe: Probe) -> str:
    name = {"memory_copy": "copy", "gemm_f32": "float32", "gpu_memory": "GPU"}[probe.kind]
    if probe.value is None:
        return f"{name:8} not measured"
    with_threads = f" with {_threads(probe.n_threads)}" if probe.n_threads else ""
    if probe.kind == "memory_copy":
        return f"{name:8} {probe.value / 1e9:.1f} GB/s{with_threads}, bytes read and written"
    if probe.kind == "gpu_memory":
        return f"{name:8} {probe.value / 1e9:.0f} GB/s in theory ({probe.method}): {probe.device}"
    one = probe.details.get("flops_1_thread")
    alone = f", {float(one) / 1e9:.0f} with one" if isinstance(one, (int, float)) and probe.n_threads != 1 else ""
    return f"{name:8} {probe.value / 1e9:.0f} GFLOP/s{with_threads}{alone} (matrix products: a proxy for prefill)"


def _threads(count: int) -> str:
    number = NUMBERS[count] if count < len(NUMBERS) else str(count)
    return f"{number} thread{'s' * (count != 1)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
