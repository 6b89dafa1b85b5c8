"""What the threads of a probe do over and over: read pieces of memory, copy them, multiply matrices.

All of it releases Python's global lock while it works. numpy is imported only here, and may be missing.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

Piece = tuple[Any, ...]
"""The arguments of one call of a kernel."""

FILL = 0x3F
"""The byte that the memory is full of: as doubles these are small normal numbers, which no processor is slow with."""

ABSENT = 0x00
"""A byte that the memory nowhere holds."""

DOT, MEMCHR, MEMMOVE = "dot64", "memchr", "memmove"
METHODS = {
    DOT: "numpy.dot of float64, the two halves of each piece",
    MEMCHR: "the C library's memchr for a byte that is nowhere",
}


class Memory:
    """One anonymous mapping; nothing of it is backed by memory before it is written."""

    def __init__(self, n_bytes: int) -> None:
        """Map `n_bytes`; raises OSError or ValueError where that cannot be."""
        self.n_bytes = n_bytes
        self._map = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def write(self, offset: int, n_bytes: int) -> None:
        """Fill a part of it; pages that are written for the first time come from the writing thread's node."""
        ctypes.memset(self.address + offset, FILL, n_bytes)


class Kernels:
    """The kernels that this Python has: `numpy` is its version, or None and why it is missing in `missing`."""

    def __init__(self, numpy: Any = None) -> None:
        """Import numpy, or take `numpy` for it (False for none)."""
        self._numpy: Any
        self._numpy, self.missing = _import_numpy() if numpy is None else (numpy, "it was left out")
        self.numpy: str | None = self._numpy.__version__ if self._numpy else None
        self._memchr = _memchr()

    @property
    def reading(self) -> tuple[str, ...]:
        """The kernels that read, best first."""
        return (DOT,) * bool(self._numpy) + (MEMCHR,) * bool(self._memchr)

    def function(self, kernel: str) -> Callable[..., object]:
        """Return what is called with each piece."""
        if kernel == DOT:
            function: Callable[..., object] = self._numpy.dot
            return function
        return ctypes.memmove if kernel == MEMMOVE else self._memchr

    def pieces(self, kernel: str, memory: Memory, offsets: Sequence[int], piece_bytes: int) -> list[Piece]:
        """Return the arguments of a call for the piece at each offset of `memory`.

        A copy's pieces are half as many: each goes from one offset to one as far behind it as half of them reach.
        """
        if kernel == DOT:
            return [self._halves(memory, offset, piece_bytes) for offset in offsets]
        if kernel == MEMCHR:
            return [(memory.address + offset, ABSENT, piece_bytes) for offset in offsets]
        half = len(offsets) // 2
        pairs = zip(offsets[half:], offsets[:half], strict=False)
        return [(memory.address + to, memory.address + origin, piece_bytes) for to, origin in pairs]

    def _halves(self, memory: Memory, offset: int, n_bytes: int) -> Piece:
        n_doubles = n_bytes // 16
        at = (ctypes.c_double * (2 * n_doubles)).from_address(memory.address + offset)
        whole = self._numpy.frombuffer(at, dtype=self._numpy.float64)
        return whole[:n_doubles], whole[n_doubles:]

    def multiplication(self, size: int) -> "Callable[[], Callable[[], object]]":
        """Return what makes, for each thread, a call that multiplies two `size` × `size` matrices of float32."""
        np = self._numpy
        left = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
        right = left.T.copy()

        def make() -> Callable[[], object]:
            product = np.empty((size, size), np.float32)
            return lambda: np.matmul(left, right, out=product)

        return make

    def blas(self) -> str | None:
        """Return name and version of the linear algebra library under numpy; None where it does not say."""
        try:
            found = self._numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
            return f"{found['name']} {found['version']}"
        except (AttributeError, KeyError, TypeError):
            return None


def pin(cpu: int) -> bool:
    """Keep the calling thread on `cpu`; return whether the system did so."""
    try:
        os.sched_setaffinity(0, {cpu})
    except (AttributeError, OSError):
        return False
    return True


def _import_numpy() -> tuple[Any, str]:
    """Return numpy, or False and the reason."""
    try:
        import numpy
    except Exception as error:  # one built for another processor or Python raises whatever it likes
        return False, (str(error).strip().splitlines() or [type(error).__name__])[0]
    return numpy, ""


def _memchr() -> Any:
    """Return the C library's memchr; None on a system that does not show it."""
    try:
        function = ctypes.CDLL(None).memchr
    except (OSError, AttributeError, TypeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    return function
