"""The memory of a probe: one slice for each thread, written first by that thread, so that it lies at its node."""

import time
from collections.abc import Callable, Sequence

from worker.probe.kernels import Memory
from worker.probe.threads import together

PAGE = 4096
PIECE_BYTES, PIECE_BYTES_OF_MANY, MANY_THREADS = 4 << 20, 16 << 20, 16
"""A piece is short beside a bin of 2 ms; of many threads it is longer, since between pieces they need Python's lock."""


class Region:
    """Slices for `n_slices` threads; of each, as much may be read as has been written."""

    def __init__(
        self, n_slices: int, wanted_bytes: int, most_bytes: int, cpus: Sequence[int] = (), nodes: Sequence[int] = ()
    ) -> None:
        """Map room for `most_bytes`, or less; raises OSError where not even `wanted_bytes` can be had.

        Slice i belongs to `cpus[i]` on `nodes[i]`.
        """
        self.piece_bytes = piece_bytes(n_slices, wanted_bytes)
        self._n, self._cpus = n_slices, cpus
        self._nodes = [nodes[index] if index < len(nodes) else 0 for index in range(n_slices)]
        self._room, self.memory = self._mapped(wanted_bytes, max(most_bytes, wanted_bytes))
        self._written = [0] * n_slices

    def _mapped(self, wanted_bytes: int, most_bytes: int) -> tuple[int, Memory]:
        while True:
            room = max(2, most_bytes // self._n // self.piece_bytes)
            try:
                return room, Memory(self._n * room * self.piece_bytes)
            except OSError:  # a system that promises no more memory than it has
                if most_bytes <= wanted_bytes:
                    raise
                most_bytes = max(wanted_bytes, most_bytes // 2)

    @property
    def room_bytes(self) -> int:
        """How much memory there may be."""
        return self.memory.n_bytes

    def write(self, n_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Write on until there are `n_bytes`, as far as `seconds` allow, but two pieces of each slice at least."""
        wanted = max(2, min(self._room, n_bytes // self._n // self.piece_bytes))
        until = clock() + seconds

        def work(index: int) -> Callable[[Callable[[], None]], None]:
            def write(_ready: Callable[[], None]) -> None:
                first = index * self._room
                while (done := self._written[index]) < wanted and (done < 2 or clock() < until):
                    self.memory.write((first + done) * self.piece_bytes, self.piece_bytes)
                    self._written[index] += 1

            return write

        together([work(index) for index in range(self._n)], self._cpus)

    def offsets(self, n_threads: int) -> list[list[int]]:
        """Return for each of `n_threads` threads the offsets of the pieces that it reads: those of its own node.

        What lies on a node where none of them runs is left out, as that node's caches are.
        """
        found: list[list[int]] = [[] for _ in range(n_threads)]
        for node in set(self._nodes[:n_threads]):
            readers = [index for index in range(n_threads) if self._nodes[index] == node]
            slices = [index for index in range(self._n) if self._nodes[index] == node]
            for turn, index in enumerate(slices):
                found[readers[turn % len(readers)]] += self._pieces(index)
        return found

    def _pieces(self, index: int) -> list[int]:
        first = index * self._room
        return [(first + number) * self.piece_bytes for number in range(self._written[index])]


def piece_bytes(n_slices: int, wanted_bytes: int) -> int:
    """Return the size of a piece: whole pages, and at least two pieces in each slice."""
    most = PIECE_BYTES if n_slices <= MANY_THREADS else PIECE_BYTES_OF_MANY
    return max(PAGE, min(most, wanted_bytes // n_slices // 2) // PAGE * PAGE)
