"""The header of a GGUF file, read with bounded time and memory (stdlib only).

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every length and count is compared with
the bytes that are left in the file before anything is allocated or looped over; limits are llama.cpp's
own where it has one (gguf.cpp), so that a file which it would abort on is refused here with a reason.
What is kept of a file is bounded in sum, too, and so is the processor time that reading it may take.
"""

import math
import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schema.errors import ModelError
from schema.problem import show
from worker.bounded_file import BoundedFile
from worker.ggml import BY_CODE, TensorType, unknown_type
from worker.gguf_data import check_data, refuse_unknown_types, with_sizes
from worker.not_gguf import what_else

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_KEY_BYTES = 65_535
MAX_NAME_BYTES = 63
MAX_DIMENSIONS = 4
MAX_ENTRIES = 100_000
MAX_STRINGS = 2_000_000
MAX_ALIGNMENT = 1 << 20

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
    """One row of the tensor table; `shape` has the row width first, `offset` counts from the data's start.

    `stored_bytes` is how much the file has for it where its type is not known here, else of no meaning.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    stored_bytes: int = 0

    @property
    def n_weights(self) -> int:
        """How many weights the tensor holds."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """How many bytes its data takes in the file."""
        if self.type.is_unknown:
            return self.stored_bytes
        return self.type.row_bytes(self.shape[0]) * math.prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        """How many bytes of the file one row takes."""
        return self.n_bytes // math.prod(self.shape[1:])


@dataclass(frozen=True, slots=True)
class Header:
    """Everything in front of the tensor data, and where that begins.

    `spans` says at which bytes of the file each metadata key stands with its value, as (start, end).
    """

    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int
    file_bytes: int
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def alignment(self) -> int:
        """Return what the offsets of tensor data are multiples of."""
        return self.integer("general.alignment") or DEFAULT_ALIGNMENT

    def integer(self, key: str) -> int | None:
        """Return the metadata value under `key` where it is an integer, else None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def count(self, key: str, most: int = 1 << 40) -> int | None:
        """Return the integer under `key` where it is one from 1 to `most`, else None."""
        value = self.integer(key)
        return value if value is not None and 0 < value <= most else None


def read_header(path: Path, *, whole: bool = True, any_type: bool = False) -> Header:
    """Return the header of `path`; raises ModelError saying what the file is, where it is no usable GGUF.

    `whole` False reads one whose tensor data is missing or cut, too; `any_type` one with tensors of types that
    are not known here, which another build of llama.cpp may know.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # before opening: a pipe would wait for a writer
            raise ModelError(f"{path} is not a regular file. Name a GGUF file.")
        with path.open("rb") as file:
            reader = BoundedFile(path, file, os.fstat(file.fileno()).st_size)
            header = _read(reader)
            if any_type:
                header = with_sizes(header)
            else:
                refuse_unknown_types(path, header)
            if whole:
                check_data(path, header)
            return header
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read(reader: BoundedFile) -> Header:
    version = _version(reader)
    n_tensors = _count(reader, "tensors", 24)
    n_keys = _count(reader, "metadata keys", 13)
    metadata: dict[str, Value] = {}
    spans: dict[str, tuple[int, int]] = {}
    for _ in range(n_keys):
        start = reader.at
        key = reader.text("a metadata key", MAX_KEY_BYTES)
        if not key or key in metadata:
            raise reader.refuse(
                f"the metadata key {show(key)} stands there twice" if key else "a metadata key is empty"
            )
        metadata[key] = _value(reader, reader.u32(f"the type of {show(key)}"), key)
        spans[key] = (start, reader.at)
    alignment = _alignment(reader, metadata)
    tensors = _tensors(reader, n_tensors)
    data_offset = -(-reader.at // alignment) * alignment if tensors else reader.at
    return Header(version, metadata, tensors, data_offset, reader.file_bytes, spans)


def _version(reader: BoundedFile) -> int:
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


def _count(reader: BoundedFile, what: str, least_bytes: int) -> int:
    count = reader.u64(f"the number of {what}")
    reader.need(count * least_bytes, f"a header with {count} {what}")
    if count > MAX_ENTRIES:
        raise reader.refuse(f"it claims {count} {what}, more than any model has")
    return count


def _value(reader: BoundedFile, code: int, key: str) -> Value:
    if code == STRING:
        return _string(reader, key)
    if code == ARRAY:
        return _array(reader, key)
    return _scalar(reader, code, key)


def _scalar(reader: BoundedFile, code: int, key: str) -> Scalar:
    if code not in SCALARS:
        raise reader.refuse(f"the metadata key {show(key)} has the unknown value type {code}")
    layout = SCALARS[code][1]
    value: Scalar = struct.unpack(layout, reader.take(struct.calcsize(layout), f"the value of {show(key)}"))[0]
    return value


def _string(reader: BoundedFile, key: str) -> str | Skipped:
    what = f"the text of {show(key)}"
    length = reader.u64(what)
    if not reader.may_keep(1, length):
        reader.skip(length, what)
        return Skipped("string", 1)
    return reader.take(length, what).decode("utf-8", "backslashreplace")


def _array(reader: BoundedFile, key: str) -> tuple[Scalar, ...] | Skipped:
    what = f"the list {show(key)}"
    code, count = reader.u32(what), reader.u64(what)
    if code == STRING:
        return _strings(reader, key, count)
    if code not in SCALARS:
        kind = "holds lists" if code == ARRAY else f"has the unknown element type {code}"
        raise reader.refuse(f"the list {show(key)} {kind}, which llama.cpp does not load")
    size = struct.calcsize(SCALARS[code][1])
    reader.need(count * size, what)
    if not reader.may_keep(count, count * size):
        reader.skip(count * size, what)
        return Skipped(SCALARS[code][0], count)
    return tuple(_scalar(reader, code, key) for _ in range(count))


def _strings(reader: BoundedFile, key: str, count: int) -> tuple[Scalar, ...] | Skipped:
    what = f"the list {show(key)}"
    reader.need(count * 8, what)
    reader.strings += count
    if reader.strings > MAX_STRINGS:
        raise reader.refuse(f"its lists hold more than {MAX_STRINGS} texts, more than any model's")
    if not reader.may_keep(count, 0):
        reader.skip_texts(count, what)
        return Skipped("string", count)
    return tuple(reader.text(what, MAX_KEY_BYTES) for _ in range(count))


def _alignment(reader: BoundedFile, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1):
        raise reader.refuse(f"general.alignment is {str(value)[:60]!r}, not a power of two")
    if value > MAX_ALIGNMENT:
        raise reader.refuse(f"general.alignment is {value}, more than any model's")
    return value


def _tensors(reader: BoundedFile, count: int) -> tuple[Tensor, ...]:
    tensors: dict[str, Tensor] = {}
    for _ in range(count):
        tensor = _tensor(reader)
        if tensor.name in tensors:
            raise reader.refuse(f"the tensor {show(tensor.name)} stands there twice")
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _tensor(reader: BoundedFile) -> Tensor:
    name = reader.text("a tensor's name", MAX_NAME_BYTES)
    what = f"the entry of tensor {show(name)}"
    n_dimensions = reader.u32(what)
    if not 0 < n_dimensions <= MAX_DIMENSIONS:
        raise reader.refuse(f"tensor {show(name)} has {n_dimensions} dimensions")
    shape = tuple(reader.u64(what) for _ in range(n_dimensions))
    code, offset = reader.u32(what), reader.u64(what)
    kind = BY_CODE.get(code) or unknown_type(code)
    if 0 in shape or shape[0] % kind.block_weights:
        raise reader.refuse(f"tensor {show(name)} of type {kind.name} has the impossible shape {shape}")
    return Tensor(name, shape, kind, offset)
