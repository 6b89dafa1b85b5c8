"""The settings of a sweep that make sense on one host, counted axis by axis instead of one by one; pure."""

import itertools
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

from orchestrator.estimate import has_gpu
from schema.host import Fingerprint
from schema.settings import GPU_SETTINGS, LOAD_SETTINGS, QUANTISED_CACHE_TYPES, Settings
from schema.sweep import Sweep
from worker.fingerprint.take import n_threads_all, n_threads_physical

Named = dict[str, Any]
"""Settings by name."""

IN_AXES = ("n_gpu_layers", "type_k", "type_v", "flash_attn", "n_batch", "n_ubatch", "n_threads")
"""Settings that have an axis of their own, because some of their combinations make no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Settings that are not measured, why, and how many of the combinations of one test they are."""

    what: str
    reason: str
    n_combinations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is left of each axis after what cannot run, or would run twice, has been dropped.

    `batches` are (n_batch, n_ubatch), `caches` (type_k, type_v, flash_attn), `threads` (asked, number);
    `loads` are the other settings that need a process of their own, `others` all the rest, by name.
    """

    batches: tuple[tuple[int, int], ...]
    caches: tuple[tuple[str, str, str], ...]
    threads: tuple[tuple[int | str, int], ...]
    layers: tuple[int | str, ...]
    loads: tuple[Named, ...]
    others: tuple[Named, ...]
    on_gpu: bool
    dropped: tuple[Dropped, ...]

    def settings(self) -> Iterator[tuple[Settings, int]]:
        """Yield each combination with its number of threads; those that share a loaded model are neighbours."""
        axes = (self.layers, self.loads, self.caches, self.batches, self.others, self.threads)
        for layers, load, (type_k, type_v, flash_attn), (n_batch, n_ubatch), other, (
            asked,
            number,
        ) in itertools.product(*axes):
            settings = Settings(
                n_batch=n_batch,
                n_ubatch=n_ubatch,
                n_threads=asked,
                type_k=type_k,
                type_v=type_v,
                flash_attn=flash_attn,
                n_gpu_layers=layers,
                **load,
                **other,
            )
            yield settings, number


def settings_space(sweep: Sweep, fingerprint: Fingerprint) -> Space:
    """Return what is left of the sweep's settings on this host, and what was dropped."""
    all_batches = tuple(itertools.product(_numbers(sweep, "n_batch"), _numbers(sweep, "n_ubatch")))
    all_caches = tuple(itertools.product(_texts(sweep, "type_k"), _texts(sweep, "type_v"), _texts(sweep, "flash_attn")))
    all_threads = tuple((asked, _n_threads(asked, fingerprint)) for asked in sweep.values("n_threads"))
    all_layers = sweep.values("n_gpu_layers")
    # An n_ubatch that nobody asked for just follows n_batch down, as llama.cpp does it.
    asked_ubatch = "n_ubatch" in sweep.params
    batches = tuple(pair for pair in all_batches if pair[1] <= pair[0] or not asked_ubatch)
    caches = tuple(cache for cache in all_caches if not _needs_flash_attention(cache))
    threads = _one_per_number(all_threads)
    on_gpu = has_gpu(fingerprint)
    layers = all_layers if on_gpu else all_layers[:1]
    rest = [name for name in sweep.params if name not in IN_AXES]
    all_named = {name: sweep.values(name) for name in rest}
    named = {name: _useful(name, values, fingerprint, on_gpu) for name, values in all_named.items()}
    loads = _product({name: values for name, values in named.items() if name in LOAD_SETTINGS})
    others = _product({name: values for name, values in named.items() if name not in LOAD_SETTINGS})
    axes: list[Sized] = [batches, caches, threads, layers, *named.values()]
    all_axes: list[Sized] = [all_batches, all_caches, all_threads, all_layers, *all_named.values()]
    sizes, full = [len(axis) for axis in axes], [len(axis) for axis in all_axes]
    reasons = (
        (_batches_text(set(all_batches) - set(batches)), "llama.cpp would use n_ubatch = n_batch without a word"),
        (_caches_text(set(all_caches) - set(caches)), "a quantised V cache needs flash attention"),
        (_threads_text(all_threads, threads), "the same number of threads on this host, measured once"),
        (_layers_text(all_layers), f"no usable GPU here, measured once as n_gpu_layers {all_layers[0]}"),
        *(_named_reason(name, all_named[name], named[name], fingerprint) for name in rest),
    )
    dropped = (
        Dropped(what=what, reason=reason, n_combinations=_lost(sizes, full, axis))
        for axis, (what, reason) in enumerate(reasons)
        if sizes[axis] < full[axis]
    )
    return Space(
        batches=batches,
        caches=caches,
        threads=threads,
        layers=layers,
        loads=loads,
        others=others,
        on_gpu=on_gpu,
        dropped=tuple(dropped),
    )


def _product(named: dict[str, tuple[int | str, ...]]) -> tuple[Named, ...]:
    return tuple(dict(zip(named, values, strict=True)) for values in itertools.product(*named.values()))


def _useful(name: str, values: tuple[int | str, ...], fingerprint: Fingerprint, on_gpu: bool) -> tuple[int | str, ...]:
    """Return the values of a setting that make a difference on this host and can be had there."""
    if name == "devices":
        return tuple(value for value in values if not _unknown_devices(str(value), fingerprint))
    return values if on_gpu or name not in GPU_SETTINGS else values[:1]


def _unknown_devices(value: str, fingerprint: Fingerprint) -> set[str]:
    """Return which of the devices asked for the build does not have; nothing where no build is known."""
    if value in ("auto", "none") or fingerprint.build is None:
        return set()
    return set(value.split("/")) - {text.split(" ")[0] for text in fingerprint.build.devices}


def _named_reason(
    name: str, values: tuple[int | str, ...], kept: tuple[int | str, ...], fingerprint: Fingerprint
) -> tuple[str, str]:
    dropped = f"{name} {_some([str(value) for value in values if value not in kept])}"
    if name == "devices":
        known = fingerprint.build.devices if fingerprint.build else ()
        return dropped, f"the build here has no such device; it has {_some([text.split(' ')[0] for text in known])}"
    return dropped, f"no usable GPU here, measured once as {name} {values[0]}"


def _lost(sizes: list[int], full: list[int], axis: int) -> int:
    """Count what axis number `axis` drops of the combinations that the axes before it left."""
    lost = full[axis] - sizes[axis]
    for kept in sizes[:axis]:
        lost *= kept
    for whole in full[axis + 1 :]:
        lost *= whole
    return lost


def _numbers(sweep: Sweep, name: str) -> tuple[int, ...]:
    return tuple(int(value) for value in sweep.values(name))


def _texts(sweep: Sweep, name: str) -> tuple[str, ...]:
    return tuple(str(value) for value in sweep.values(name))


def _n_threads(asked: int | str, fingerprint: Fingerprint) -> int:
    symbols: dict[str, Callable[[Fingerprint], int]] = {"physical": n_threads_physical, "all": n_threads_all}
    return symbols[asked](fingerprint) if isinstance(asked, str) else asked


def _needs_flash_attention(cache: tuple[str, str, str]) -> bool:
    return cache[1] in QUANTISED_CACHE_TYPES and cache[2] == "off"


def _one_per_number(threads: tuple[tuple[int | str, int], ...]) -> tuple[tuple[int | str, int], ...]:
    """Keep one way to ask for each number: a symbol before a number, since only symbols compare along hosts."""
    kept: dict[int, int | str] = {}
    for asked, number in threads:
        if number not in kept or (isinstance(asked, str) and not isinstance(kept[number], str)):
            kept[number] = asked
    return tuple((asked, number) for number, asked in kept.items())


def _batches_text(pairs: set[tuple[int, int]]) -> str:
    return "n_ubatch above n_batch: " + _some(f"{n_ubatch} > {n_batch}" for n_batch, n_ubatch in sorted(pairs))


def _caches_text(caches: set[tuple[str, str, str]]) -> str:
    return f"flash_attn off with type_v {_some(sorted({cache[1] for cache in caches}))}"


def _threads_text(every: tuple[tuple[int | str, int], ...], kept: tuple[tuple[int | str, int], ...]) -> str:
    same = {number: asked for asked, number in kept}
    return "n_threads " + _some(f"{asked} = {same[number]}" for asked, number in every if asked != same[number])


def _layers_text(layers: tuple[int | str, ...]) -> str:
    return f"n_gpu_layers {_some(str(value) for value in layers[1:])}"


def _some(texts: Iterator[str] | list[str]) -> str:
    listed = list(texts)
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")
