"""The course of one probe in its own process: kernels tried, a curve, memory copied, matrices multiplied."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from schema.probe import Point
from worker.probe.estimate import SAME_SHARE, point
from worker.probe.kernels import MEMMOVE, Kernels
from worker.probe.region import Region
from worker.probe.request import Request
from worker.probe.threads import best_of, repeating, together

Emit = Callable[[dict[str, Any]], None]
WRITE_SECONDS = 0.6
BRIEF_WRITE_SECONDS = 0.2
SETTLE_SECONDS = 0.01
GEMM_SIZES = (1024, 512, 256)
GEMM_SECONDS = 0.25
GEMM_CALL_SECONDS = 0.1
GEMM_THREADS = 64
"""OpenBLAS of numpy's wheels is built for so many callers at once."""


class Course:
    """One probe while it runs; every figure leaves through `emit` as soon as it is known."""

    def __init__(
        self, request: Request, kernels: Kernels, emit: Emit, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Map the memory that `request` allows; raises OSError where that fails."""
        self._request, self._kernels, self._emit, self._clock = request, kernels, emit, clock
        self._over = clock() + request.budget_seconds
        self._full = request.counts[-1]
        self._region = Region(self._full, request.working_set_bytes, request.most_bytes, request.cpus, request.nodes)

    def run(self) -> None:
        """Measure whatever there is time for."""
        self._step("filling memory")
        self._region.write(
            self._request.working_set_bytes, BRIEF_WRITE_SECONDS if self._request.brief else WRITE_SECONDS
        )
        if not self._kernels.reading:
            self._emit(
                {"event": "error", "text": "neither numpy nor the C library's memchr is there to read memory with"}
            )
            return
        if self._request.brief:
            for count in self._request.counts:
                self._stretch(count, self._kernels.reading[0])
            return
        self._doubled(*self._curve())
        if self._has_time(self._request.step_seconds):
            self._stretch(self._full, MEMMOVE)
        self._multiply()

    def _curve(self) -> tuple[str, float]:
        """Measure every count, the full one by every kernel and once more; return the best kernel and its estimate."""
        full = {kernel: self._stretch(self._full, kernel).bytes_per_s for kernel in self._kernels.reading}
        best = max(full, key=lambda kernel: full[kernel])
        for count in self._request.counts[:-1]:
            self._stretch(count, best)
        return best, max(full[best], self._stretch(self._full, best).bytes_per_s)

    def _doubled(self, kernel: str, bytes_per_s: float) -> None:
        """Read twice the memory, and where that is slower, twice that again: a cache that is not shown may help."""
        size = self._request.working_set_bytes
        for _ in range(2):
            size *= 2
            if size > self._region.room_bytes or not self._has_time(2 * self._request.step_seconds):
                return
            self._region.write(size, self._request.step_seconds)
            if self._stretch(self._full, kernel).bytes_per_s >= SAME_SHARE * bytes_per_s:
                return

    def _stretch(self, n_threads: int, kernel: str) -> Point:
        doing = "copying memory" if kernel == MEMMOVE else f"reading memory by {kernel}"
        self._step(f"{doing} with {n_threads} thread{'s' * (n_threads > 1)}")
        function, size = self._kernels.function(kernel), self._region.piece_bytes
        shares = self._region.offsets(n_threads)
        works = [
            repeating(
                function,
                self._kernels.pieces(kernel, self._region.memory, offsets, size),
                2 * size if kernel == MEMMOVE else size,
                self._request.step_seconds,
            )
            for offsets in shares
        ]
        found = point(together(works, self._request.cpus), kernel, size * sum(map(len, shares)))
        self._emit({"event": "point", "point": asdict(found)})
        return found

    def _multiply(self) -> None:
        """Time matrix products, with one thread and with all: the sum over threads of each one's quickest product."""
        if self._kernels.numpy is None:
            return
        size, n_threads = self._size(), min(self._full, GEMM_THREADS)
        make = self._kernels.multiplication(size)
        for count in sorted({1, n_threads}, reverse=True):
            if count < n_threads and not self._has_time(GEMM_SECONDS):
                return
            self._step(f"multiplying matrices with {count} thread{'s' * (count > 1)}")
            works = [best_of(make(), GEMM_SECONDS) for _ in range(count)]
            flops = sum(2e9 * size**3 / best_ns for best_ns in together(works, self._request.cpus))
            self._emit({"event": "gemm", "n_threads": count, "size": size, "flops": flops})

    def _size(self) -> int:
        """Return the largest size whose product takes a tenth of a second at most, judged by the smallest."""
        small = GEMM_SIZES[-1]
        seconds = together([best_of(self._kernels.multiplication(small)(), 0.0)], self._request.cpus)[0] / 1e9
        fitting = (size for size in GEMM_SIZES if seconds * (size / small) ** 3 <= GEMM_CALL_SECONDS)
        return next(fitting, small)

    def _has_time(self, seconds: float) -> bool:
        return self._clock() + seconds <= self._over

    def _step(self, text: str) -> None:
        self._emit({"event": "step", "text": text})
        time.sleep(SETTLE_SECONDS)  # whoever shows it shall be done with that
