"""Canonical JSON, its digest, and the way back from JSON into frozen dataclasses (stdlib only)."""

import dataclasses
import functools
import hashlib
import json
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: Any) -> str:
    """Return one line of JSON with sorted keys and no blanks; NaN and infinity raise ValueError."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of `value`'s canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()


def decode(cls: type[T], value: Any) -> T:
    """Return `value` (parsed JSON) as an instance of the dataclass `cls`.

    Understands nested dataclasses, tuples, unions with None, and plain values. Raises
    TypeError where a key is missing, unknown or of the wrong shape.
    """
    return typing.cast(T, _decode(cls, value))


def _decode(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode_dataclass(hint, value)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), value)
    if origin is tuple:
        return tuple(_decode(typing.get_args(hint)[0], item) for item in value)
    if origin is dict:
        return {key: _decode(typing.get_args(hint)[1], item) for key, item in value.items()}
    return value


def _decode_union(options: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        return None
    shaped = [option for option in options if dataclasses.is_dataclass(option) or typing.get_origin(option)]
    return _decode(shaped[0], value) if shaped else value


_hints = functools.cache(typing.get_type_hints)
"""The types of a class's fields; to find them anew for each value took most of the time."""


def _decode_dataclass(cls: type, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{cls.__name__} needs an object, got {type(value).__name__}")
    hints = _hints(cls)
    return cls(**{key: _decode(hints.get(key, Any), item) for key, item in value.items()})
