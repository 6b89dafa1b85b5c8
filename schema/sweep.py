"""The sweep file as a validated value: `load_sweep` reads it, or names every fault in it at once."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from schema.host_terms import parse_host_entry
from schema.job import HUB_FORM, Test
from schema.problem import raise_problems, show
from schema.settings import CACHE_TYPES, LOAD_MODES, NUMA_STRATEGIES, PRIORITIES, SPLIT_MODES, Settings
from schema.sweep_env import environments
from schema.sweep_host_settings import host_settings
from schema.sweep_keys import LEVELS, meant
from schema.sweep_reader import Reader, kind
from schema.sweep_tests import MAX_TOKENS, read_tests
from schema.sweep_values import (
    BadValueError,
    choice,
    cpu_mask,
    formed,
    plain_switch,
    plain_text,
    seconds,
    switch,
    whole_number,
)
from schema.text_file import read_text
from schema.yaml_file import Entry, Mapping, Node, Scalar, parse_yaml

MAX_TAGS = 50
MAX_THREADS = 1024
MAX_ROUNDS = 100
ORDERS = ("sequential", "interleaved")
ACROSS = ("models", "builds")
MMAP = {"auto": "auto", "on": "mmap", "off": "none"}
"""What a value of `mmap`, the short form, means as `load_mode`."""

READERS: dict[str, Callable[[Scalar], int | str]] = {
    "n_batch": lambda scalar: whole_number(scalar, 1, MAX_TOKENS),
    "n_ubatch": lambda scalar: whole_number(scalar, 1, MAX_TOKENS),
    "n_threads": lambda scalar: whole_number(scalar, 1, MAX_THREADS, ("physical", "all")),
    "n_threads_batch": lambda scalar: whole_number(scalar, 1, MAX_THREADS, ("same", "physical", "all")),
    "type_k": lambda scalar: choice(scalar, CACHE_TYPES),
    "type_v": lambda scalar: choice(scalar, CACHE_TYPES),
    "flash_attn": switch,
    "n_gpu_layers": lambda scalar: whole_number(scalar, 0, 65_535, ("all",)),
    "n_cpu_moe": lambda scalar: whole_number(scalar, 0, 65_535),
    "split_mode": lambda scalar: choice(scalar, SPLIT_MODES),
    "main_gpu": lambda scalar: whole_number(scalar, 0, 255),
    "tensor_split": lambda scalar: formed(scalar, r"[0-9]{1,6}(\.[0-9]{1,6})?(/[0-9]{1,6}(\.[0-9]{1,6})?)*", "3/1"),
    "tensor_buft_overrides": lambda scalar: formed(scalar, r"none|[^=;]+=[\w*]+(;[^=;]+=[\w*]+)*", "blk.1.ffn_.*=CPU"),
    "devices": lambda scalar: formed(scalar, r"auto|none|\w+(/\w+)*", "CUDA0/CUDA1"),
    "no_kv_offload": plain_switch,
    "no_op_offload": plain_switch,
    "no_host": plain_switch,
    "embeddings": plain_switch,
    "repack": plain_switch,
    "load_mode": lambda scalar: choice(scalar, LOAD_MODES),
    "lazy_mode": switch,
    "cpu_mask": cpu_mask,
    "cpu_strict": plain_switch,
    "poll": lambda scalar: whole_number(scalar, 0, 100),
    "prio": lambda scalar: choice(scalar, tuple(PRIORITIES)),
    "numa": lambda scalar: choice(scalar, NUMA_STRATEGIES),
}
"""Setting under `params` -> what reads one of its values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model as asked: a path, a synthetic one's `shape:quantisation` or `like:PATH`, one on the hub."""

    source: Literal["path", "synthetic", "hf"]
    spec: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is to be measured, as asked. `params` holds the settings that were given, in the order of Settings.

    No list holds a value twice. `hosts` without an entry means every host; `text` is the file's text.
    `interleaved`: jobs of one process take their repetitions in turn. `across` names what alternates in
    blocks, `models`, `builds` or both, and `rounds` how often each job is measured then.
    """

    name: str
    models: tuple[ModelEntry, ...]
    tests: tuple[Test, ...]
    params: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    builds: tuple[str, ...] = ("default",)
    repetitions: int = 5
    timeout_seconds: float = 1800.0
    interleaved: bool = False
    across: tuple[str, ...] = ()
    rounds: int = 1
    tags: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def values(self, setting: str) -> tuple[int | str, ...]:
        """Return the values asked for `setting`, or its default alone."""
        return self.params.get(setting) or (getattr(Settings(), setting),)

    @property
    def n_combinations(self) -> int:
        """Number of different jobs on one host before anything is skipped; each comes once in every round."""
        count = len(self.models) * len(self.tests) * len(self.builds)
        for setting in fields(Settings):
            count *= len(self.values(setting.name))
        return count


def load_sweep(path: Path) -> Sweep:
    """Return the sweep in the file; SweepError holds every fault, each as `FILE:LINE: key: what is wrong`.

    Relative model paths are taken from the file's own directory.
    """
    return parse_sweep(read_text(path), str(path), path.absolute().parent)


def parse_sweep(text: str, filename: str, base: Path) -> Sweep:
    """Return the sweep that `text` holds; `filename` stands in messages, `base` is where relative paths start."""
    root, problems = parse_yaml(text, filename)
    reader = Reader(problems)
    reader.check_keys(root, "", "")
    sweep = Sweep(
        name=reader.one(root.get("name"), lambda scalar: plain_text(scalar, 100)) or Path(filename).stem or "sweep",
        models=_models(reader, root, base),
        tests=read_tests(reader, root.get("tests")),
        params=_params(reader, root.get("params"))
        | environments(reader, root.get("env"))
        | host_settings(reader, root.get("host_settings")),
        hosts=reader.list_of(root.get("hosts"), "hosts", _host_entry),
        builds=reader.list_of(root.get("builds"), "builds", _build_name) or ("default",),
        repetitions=_repetitions(reader, root.get("repeat")),
        timeout_seconds=reader.one(root.get("timeout"), seconds) or 1800.0,
        interleaved=reader.one(root.get("order"), lambda scalar: choice(scalar, ORDERS)) == "interleaved",
        across=_across(reader, root),
        rounds=_rounds(reader, root),
        tags=_tags(reader, root.get("tags")),
        text=text,
    )
    raise_problems(filename, problems)
    return sweep


def _across(reader: Reader, root: Mapping) -> tuple[str, ...]:
    """Return what alternates, in the order of ACROSS whatever that of the file."""
    given = reader.list_of(root.get("across"), "across", lambda scalar: choice(scalar, ACROSS))
    return tuple(word for word in ACROSS if word in given)


def _rounds(reader: Reader, root: Mapping) -> int:
    entry, across = root.get("rounds"), root.get("across")
    rounds = reader.one(entry, lambda scalar: int(whole_number(scalar, 2, MAX_ROUNDS)))
    if entry is not None and rounds and across is None:
        reader.fault(entry.line, "rounds", "says how often what is `across` alternates; write `across: [builds]` too.")
    return (rounds or 2) if across is not None else 1


def _repetitions(reader: Reader, entry: Entry | None) -> int:
    if entry is not None and isinstance(entry.value, Mapping):
        reader.fault(entry.line, "repeat", "min, max, until and within are not in this version; write a number.")
        return 5
    return reader.one(entry, lambda scalar: int(whole_number(scalar, 1, 1000))) or 5


def _tags(reader: Reader, entry: Entry | None) -> dict[str, str]:
    if entry is None:
        return {}
    if not isinstance(entry.value, Mapping):
        reader.fault(entry.line, "tags", f"{kind(entry.value)} stands where tags belong; write `tags: {{why: text}}`.")
        return {}
    tags = entry.value.entries
    if len(tags) > MAX_TAGS:
        reader.fault(entry.line, "tags", f"there are {len(tags)} tags; write at most {MAX_TAGS}.")
    for tag in tags[:MAX_TAGS]:
        name = Scalar(tag.line, tag.key, quoted=True)
        reader.attempt(name, f"tags.{tag.key}", lambda scalar: plain_text(scalar, 64))
    return {tag.key: reader.one(tag, lambda scalar: plain_text(scalar, 200), "tags.") or "" for tag in tags[:MAX_TAGS]}


def _params(reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
    mapping = reader.mapping(entry)
    if mapping is None:
        return {}
    found = {name: reader.list_of(mapping.get(name), f"params.{name}", read) for name, read in READERS.items()}
    short = _mmap(reader, mapping)
    found["load_mode"] = found["load_mode"] or short
    return {setting.name: found[setting.name] for setting in fields(Settings) if found.get(setting.name)}


def _mmap(reader: Reader, mapping: Mapping) -> tuple[int | str, ...]:
    entry = mapping.get("mmap")
    if entry and mapping.get("load_mode"):
        reader.fault(entry.line, "params.mmap", "says the same as `load_mode`; leave one of them out.")
    values = reader.list_of(entry, "params.mmap", switch)
    return tuple(MMAP[value] for value in values)


def _models(reader: Reader, root: Mapping, base: Path) -> tuple[ModelEntry, ...]:
    entry = root.get("models")
    if entry is None:
        if not any(meant(other.key, "") == "models" for other in root.entries):
            reader.fault(1, "models", "the key is missing; write `models: [{path: FILE.gguf}]`.")
        return ()
    found = []
    for number, item in enumerate(reader.items(entry, "models"), 1):
        model = _model(reader, item, f"models[{number}]", base)
        if model is not None:
            found.append((item.line, model))
    return reader.distinct(found, "models", lambda model: show(model.spec))


def _model(reader: Reader, item: Node, key: str, base: Path) -> ModelEntry | None:
    if not isinstance(item, Mapping):
        reader.fault(item.line, key, _model_form(item))
        return None
    reader.check_keys(item, "models", f"{key}.")
    given = [entry for entry in item.entries if entry.key in LEVELS["models"]]
    if len(given) == 1:
        return _model_of(reader, given[0], f"{key}.{given[0].key}", base)
    if given:
        both = f"`{given[0].key}` and `{given[1].key}`"
        reader.fault(given[1].line, key, f"one model cannot be both {both}; write two entries.")
    elif not any(meant(other.key, "models") in LEVELS["models"] for other in item.entries):
        reader.fault(item.line, key, f"there is no model here; {_MODEL_FORMS}")
    return None


def _model_of(reader: Reader, entry: Entry, key: str, base: Path) -> ModelEntry | None:
    if not isinstance(entry.value, Scalar):
        reader.fault(entry.line, key, f"{kind(entry.value)} stands where one value belongs; write one entry a model.")
        return None
    if entry.key == "synthetic":
        spec = reader.attempt(entry.value, key, _synthetic)
        return ModelEntry(source="synthetic", spec=spec) if spec else None
    if entry.key == "hf":
        spec = reader.attempt(entry.value, key, lambda scalar: formed(scalar, HUB_FORM, "USER/REPOSITORY:Q4_K_M"))
        return ModelEntry(source="hf", spec=spec) if spec else None
    path = reader.attempt(entry.value, key, lambda scalar: plain_text(scalar, 4096))
    if not path:
        return None
    whole = os.path.normpath(base / os.path.expanduser(path))
    if entry.key == "like":
        return ModelEntry(source="synthetic", spec=f"like:{whole}")
    return ModelEntry(source="path", spec=whole)


_MODEL_FORMS = (
    "write `path: FILE.gguf`, `synthetic: SHAPE:QUANTISATION`, `like: FILE.gguf` or `hf: USER/REPOSITORY:QUANTISATION`."
)


def _model_form(item: Node) -> str:
    if not isinstance(item, Scalar) or item.is_null:
        return f"{kind(item)} stands where a model belongs; {_MODEL_FORMS}"
    looks_synthetic = ":" in item.text and not item.text.lower().endswith(".gguf")
    return f"say what {show(item.text)} is; write `{{{'synthetic' if looks_synthetic else 'path'}: {item.text:.60}}}`."


def _build_name(scalar: Scalar) -> str:
    return formed(scalar, r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}", "default")


def _host_entry(scalar: Scalar) -> str:
    try:
        parse_host_entry(plain_text(scalar, 400))
    except ValueError as error:
        raise BadValueError(str(error)) from None
    return " ".join(scalar.text.split())


def _synthetic(scalar: Scalar) -> str:
    text = plain_text(scalar, 200)
    if not re.fullmatch(r"[\w.+-]+:\w+", text, re.ASCII):
        raise BadValueError(f"{show(text)} is not SHAPE:QUANTISATION; write it like llama-3.2-1b:Q4_K_M.")
    return text
