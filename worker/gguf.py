"""The header of a GGUF file, read with bounded time and memory (stdlib only).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length and count is compared with
the bytes that are left in the file before anything is allocated or looped over; limits are llama.cpp's
own where it has one (gguf.cpp), so that a file which it would abort on is refused here with a reason.
"""

import math
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from schema.errors import ModelError
from worker.ggml import BY_CODE, TensorType
from worker.not_gguf import what_else

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_KEY_BYTES = 65_535
MAX_NAME_BYTES = 63
MAX_DIMENSIONS = 4
MAX_ENTRIES = 100_000
MAX_STRINGS = 2_000_000
MAX_HEADER_BYTES = 64 << 20
KEPT_ITEMS = 1024
KEPT_BYTES = 1 << 20

SCALARS = {
    0: ("u8", "<B"),
    1: ("i8", "<b"),
    2: ("u16", "<H"),
    3: ("i16", "<h"),
    4: ("u32", "<I"),
    5: ("i32", "<i"),
    6: ("f32", "<f"),
    7: ("bool", "<?"),
    10: ("u64", "<Q"),
    11: ("i64", "<q"),
    12: ("f64", "<d"),
}
"""Code of a value type in the file: its name here and its `struct` format."""

STRING, ARRAY = 8, 9
Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A value too long to be worth keeping (a tokenizer's lists): its element type and how many there are."""

    type: str
    count: int


Value = Scalar | tuple[Scalar, ...] | Skipped


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of the tensor table; `shape` has the row width first, `offset` counts from the data's start."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int

    @property
    def n_weights(self) -> int:
        """How many weights the tensor holds."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """How many bytes its data takes in the file."""
        return self.type.row_bytes(self.shape[0]) * math.prod(self.shape[1:])


@dataclass(frozen=True, slots=True)
class Header:
    """Everything in front of the tensor data, and where that begins."""

    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int
    file_bytes: int

    def integer(self, key: str) -> int | None:
        """Return the metadata value under `key` where it is an integer, else None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_header(path: Path) -> Header:
    """Return the header of `path`; raises ModelError saying what the file is, where it is no usable GGUF."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # before opening: a pipe would wait for a writer
            raise ModelError(f"{path} is not a regular file. Name a GGUF file.")
        with path.open("rb") as file:
            return _read(_Reader(path, file, os.fstat(file.fileno()).st_size))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


class _Reader:
    """A position in the file; nothing is read or skipped before it is known to be there."""

    def __init__(self, path: Path, file: IO[bytes], file_bytes: int) -> None:
        self.path, self.file, self.file_bytes = path, file, file_bytes
        self.at = self.taken = self.strings = 0

    @property
    def left(self) -> int:
        return self.file_bytes - self.at

    def need(self, n: int, what: str) -> None:
        if n > self.left:
            raise ModelError(
                f"{self.path} is damaged or not complete: the file is {self.file_bytes} bytes, {what} needs "
                f"at least {self.at + n}. Download or copy it again."
            )

    def refuse(self, reason: str) -> ModelError:
        return ModelError(f"{self.path} is damaged: {reason} (at byte {self.at}). Download or copy it again.")

    def take(self, n: int, what: str) -> bytes:
        self.need(n, what)
        self.taken += n
        if self.taken > MAX_HEADER_BYTES:
            raise self.refuse(f"its header is longer than {MAX_HEADER_BYTES} bytes, longer than any model's")
        data = self.file.read(n)
        if len(data) != n:
            raise ModelError(f"{self.path} became shorter while it was read. Try again when it is complete.")
        self.at += n
        return data

    def skip(self, n: int, what: str) -> None:
        self.need(n, what)
        self.file.seek(n, os.SEEK_CUR)
        self.at += n

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def text(self, what: str, most: int) -> str:
        length = self.u64(what)
        self.need(length, what)
        if length > most:
            raise self.refuse(f"{what} is {length} bytes long, more than the {most} that llama.cpp allows")
        return self.take(length, what).decode("utf-8", "backslashreplace")


def _read(reader: _Reader) -> Header:
    version = _version(reader)
    n_tensors = _count(reader, "tensors", 24)
    n_keys = _count(reader, "metadata keys", 13)
    metadata: dict[str, Value] = {}
    for _ in range(n_keys):
        key = reader.text("a metadata key", MAX_KEY_BYTES)
        if not key or key in metadata:
            raise reader.refuse(f"the metadata key {key!r} stands there twice" if key else "a metadata key is empty")
        metadata[key] = _value(reader, reader.u32(f"the type of {key!r}"), key)
    alignment = _alignment(reader, metadata)
    tensors = tuple(_tensor(reader) for _ in range(n_tensors))
    data_offset = math.ceil(reader.at / alignment) * alignment if tensors else reader.at
    _check_data(reader, tensors, data_offset)
    return Header(version, metadata, tensors, data_offset, reader.file_bytes)


def _version(reader: _Reader) -> int:
    start = reader.file.read(512)
    if reader.file_bytes < 8 or start[:4] != MAGIC:
        raise ModelError(f"{reader.path} is not a GGUF file but {what_else(start, reader.file_bytes)}")
    version = int.from_bytes(start[4:8], "little")
    if version and not version & 0xFFFF:
        raise ModelError(
            f"{reader.path} is a big-endian GGUF file, which llama.cpp cannot load on this machine. "
            "Download the little-endian one, or convert it with gguf_convert_endian.py."
        )
    if version not in (2, 3):
        raise ModelError(
            f"{reader.path} has version {version} of GGUF; llama.cpp loads 2 and 3. Convert the model again."
        )
    reader.file.seek(8)
    reader.at = 8
    return version


def _count(reader: _Reader, what: str, least_bytes: int) -> int:
    count = reader.u64(f"the number of {what}")
    reader.need(count * least_bytes, f"a header with {count} {what}")
    if count > MAX_ENTRIES:
        raise reader.refuse(f"it claims {count} {what}, more than any model has")
    return count


def _value(reader: _Reader, code: int, key: str) -> Value:
    if code == STRING:
        return _string(reader, key)
    if code == ARRAY:
        return _array(reader, key)
    return _scalar(reader, code, key)


def _scalar(reader: _Reader, code: int, key: str) -> Scalar:
    if code not in SCALARS:
        raise reader.refuse(f"the metadata key {key!r} has the unknown value type {code}")
    layout = SCALARS[code][1]
    value: Scalar = struct.unpack(layout, reader.take(struct.calcsize(layout), f"the value of {key!r}"))[0]
    return value


def _string(reader: _Reader, key: str) -> str | Skipped:
    what = f"the text of {key!r}"
    length = reader.u64(what)
    if length > KEPT_BYTES:
        reader.skip(length, what)
        return Skipped("string", 1)
    return reader.take(length, what).decode("utf-8", "backslashreplace")


def _array(reader: _Reader, key: str) -> tuple[Scalar, ...] | Skipped:
    what = f"the list {key!r}"
    code, count = reader.u32(what), reader.u64(what)
    if code == STRING:
        return _strings(reader, key, count)
    if code not in SCALARS:
        kind = "holds lists" if code == ARRAY else f"has the unknown element type {code}"
        raise reader.refuse(f"the list {key!r} {kind}, which llama.cpp does not load")
    size = struct.calcsize(SCALARS[code][1])
    if count > KEPT_ITEMS:
        reader.skip(count * size, what)
        return Skipped(SCALARS[code][0], count)
    reader.need(count * size, what)
    return tuple(_scalar(reader, code, key) for _ in range(count))


def _strings(reader: _Reader, key: str, count: int) -> tuple[Scalar, ...] | Skipped:
    """Walk over `count` texts: only reading them one by one shows where the list ends."""
    what = f"the list {key!r}"
    reader.need(count * 8, what)
    reader.strings += count
    if reader.strings > MAX_STRINGS:
        raise reader.refuse(f"its lists hold more than {MAX_STRINGS} texts, more than any model's")
    if count <= KEPT_ITEMS:
        return tuple(reader.text(what, MAX_KEY_BYTES) for _ in range(count))
    for _ in range(count):
        reader.skip(reader.u64(what), what)
    return Skipped("string", count)


def _alignment(reader: _Reader, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1):
        raise reader.refuse(f"general.alignment is {value!r}, not a power of two")
    return value


def _tensor(reader: _Reader) -> Tensor:
    name = reader.text("a tensor's name", MAX_NAME_BYTES)
    what = f"the entry of tensor {name!r}"
    n_dimensions = reader.u32(what)
    if not 0 < n_dimensions <= MAX_DIMENSIONS:
        raise reader.refuse(f"tensor {name!r} has {n_dimensions} dimensions")
    shape = tuple(reader.u64(what) for _ in range(n_dimensions))
    code, offset = reader.u32(what), reader.u64(what)
    if code not in BY_CODE:
        raise ModelError(
            f"{reader.path}: tensor {name!r} has the type {code}, which this version does not know. "
            "Use a newer tokfleet, or a model quantised otherwise."
        )
    kind = BY_CODE[code]
    if 0 in shape or shape[0] % kind.block_weights:
        raise reader.refuse(f"tensor {name!r} of type {kind.name} has the impossible shape {shape}")
    return Tensor(name, shape, kind, offset)


def _check_data(reader: _Reader, tensors: tuple[Tensor, ...], data_offset: int) -> None:
    last = max(tensors, key=lambda tensor: tensor.offset + tensor.n_bytes, default=None)
    if last is None:
        return
    end = data_offset + last.offset + last.n_bytes
    if end > reader.file_bytes:
        raise ModelError(
            f"{reader.path} is not complete: the file is {reader.file_bytes} bytes, needs {end} "
            f"(for tensor {last.name!r}). Download or copy it again."
        )
