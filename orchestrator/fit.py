"""Which tests of a model a host can hold, by their length and by the memory they need; pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.estimate import GIB, MEMORY_MARGIN, Sizes, capacity_bytes, memory_bytes
from orchestrator.settings_space import Space
from schema.host import Fingerprint
from schema.job import ModelRef, Test

Case = tuple[str, str, int | str]
"""(type_k, type_v, place): the place is 0 (main memory), "some" or "all" (layers on the GPU)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model of the sweep that was found: its reference and its sizes.

    `unknown` is what only a build of one's own may know of it, as the rest of a sentence.
    """

    ref: ModelRef
    sizes: Sizes
    unknown: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """What of the sweep is not measured on `host`, why, and how many jobs that would have been.

    `missing` says that it was asked for and could run if the host or the model were there; the rest is
    impossible, or the same as another job.
    """

    host: str
    what: str
    reason: str
    n_jobs: int
    missing: bool = False


class Fit:
    """The tests of one model that fit, for each kind of KV cache and each place of the layers.

    `tests` has them, `cases` counts the combinations of flash_attn and n_gpu_layers behind each
    kind, `memory_bytes` is the most that a test which fits needs.
    """

    def __init__(self, model: KnownModel, space: Space, tests: Sequence[Test], host: Fingerprint) -> None:
        self.model, self._space, self._host = model, space, host
        self._per_case = len(space.batches) * len(space.threads) * len(space.loads) * len(space.others)
        self._too_big: Counter[Test] = Counter()
        self._need = (0, 0)
        self.memory_bytes = 0
        limit = model.sizes.n_ctx_train
        self._too_long = [test for test in tests if limit and test.n_ctx // test.n_parallel > limit]
        too_long = set(self._too_long)
        short = [test for test in tests if test not in too_long]
        self.cases: Counter[Case] = Counter(
            (type_k, type_v, self.place(layers)) for (type_k, type_v, _) in space.caches for layers in space.layers
        )
        self.tests = {case: self._fitting(short, case) for case in self.cases}
        self.n_jobs = self._per_case * sum(n * len(self.tests[case]) for case, n in self.cases.items())

    def place(self, layers: int | str) -> int | str:
        """Return where a model with so many `n_gpu_layers` lies on this host: 0, "some" or "all"."""
        if not self._space.on_gpu or layers == 0:
            return 0
        return "all" if layers == "all" else "some"

    def cache_bytes_per_token(self, type_k: str, type_v: str) -> float:
        """Return what one token of context adds to the KV cache."""
        return (self.model.sizes.kv_bytes(4096, type_k, type_v) or 0) / 4096

    def _fitting(self, tests: Sequence[Test], case: Case) -> tuple[Test, ...]:
        type_k, type_v, place = case
        capacity = capacity_bytes(self._host, place, place != 0)
        fitting = []
        for test in tests:
            need = memory_bytes(self.model.sizes, test, type_k, type_v)
            if capacity is not None and need > capacity:
                self._too_big[test] += self.cases[case]
                self._need = max(self._need, (need, capacity))
            else:
                fitting.append(test)
                self.memory_bytes = max(self.memory_bytes, need)
        return tuple(fitting)

    def side_by_side_bytes(self, n_jobs: int) -> int | None:
        """Return what `n_jobs` contexts need beside each other where that is more than the host has, else None.

        The largest counts for all of them, and twice where a depth is filled: its state is kept, too.
        """
        weights = int(self.model.sizes.weight_bytes * MEMORY_MARGIN)
        largest = max(
            (memory_bytes(self.model.sizes, test, type_k, type_v) - weights) * (2 if test.n_depth else 1)
            for (type_k, type_v, _), tests in self.tests.items()
            for test in tests
        )
        need = weights + min(n_jobs, self.n_jobs) * largest
        capacities = [capacity_bytes(self._host, place, place != 0) for _, _, place in self.tests]
        return need if any(capacity is not None and need > capacity for capacity in capacities) else None

    def skipped(self) -> Iterator[Skipped]:
        """Yield what does not run: contexts longer than the model was trained for, and what needs too much memory."""
        if self._too_long and self.cases:
            reason = f"longer than the {self.model.sizes.n_ctx_train} tokens the model was trained for"
            yield self._skip(self._too_long, reason, len(self._too_long) * sum(self.cases.values()))
        if self._too_big:
            need, capacity = (f"{n_bytes / GIB:.1f} GiB" for n_bytes in self._need)
            reason = f"does not fit in memory: needs up to {need} of {capacity}"
            yield self._skip(list(self._too_big), reason, sum(self._too_big.values()))

    def _skip(self, tests: Sequence[Test], reason: str, n_cases: int) -> Skipped:
        names = [test.name for test in tests]
        more = f" and {len(names) - 3} more tests" if len(names) > 3 else ""
        return Skipped(
            host=self._host.hostname,
            what=f"{self.model.ref.spec}: {', '.join(names[:3])}{more}",
            reason=reason,
            n_jobs=n_cases * self._per_case,
        )
