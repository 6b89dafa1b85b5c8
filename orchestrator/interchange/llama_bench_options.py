"""llama-bench's options: their names, what each is called in a sweep file, and how its values are written (pure).

The source is `parse_cmd_params` in llama.cpp's tools/llama-bench/llama-bench.cpp. Nothing heavy is
imported here: `tokfleet bench --help` needs the names alone.
"""

import itertools
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from schema.settings import CACHE_TYPES, LOAD_MODES, PRIORITIES, SPLIT_MODES

Value = int | str | tuple[int, int]
"""One value in a sweep's terms: a number, a word, or the two counts of `-pg`."""

LARGEST = 2**31 - 1
MOST_VALUES = 256
_PRIORITY = {str(number): word for word, number in PRIORITIES.items()}
NUMA = {"": "distribute", "distribute": "distribute", "isolate": "isolate", "numactl": "numactl"}
FLASH = {
    **{"0": "off", "1": "on", "false": "off", "true": "on"},
    **{"-1": "auto", "off": "off", "on": "on", "auto": "auto", "disabled": "off", "enabled": "on"},
}
"""Every word that llama-bench has ever had for flash attention."""

_RANGE = re.compile(r"(-?[0-9]{1,10})(?:-([0-9]{1,10})(?:([+*])([0-9]{1,10}))?)?")
_SHARE = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Option:
    """An option that is understood: `key` is its place in a sweep file, `read` makes its values of one argument.

    Given more than once, values add up, but where `replaces` is set only the last counts.
    """

    names: tuple[str, ...]
    key: str
    read: Callable[[str], list[Value]]
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """An option of a command line as typed (`words`), its plain `name`, and its value where it has one."""

    name: str
    value: str | None
    words: tuple[str, ...]


def pieces(arguments: Sequence[str], others: Mapping[str, bool]) -> Iterator[Piece]:
    """Yield the options of `arguments` in turn; `others` says which options besides take a value.

    A name that is known nowhere, or whose value is missing, comes alone. `--long=value` is one too.
    """
    rest = iter(arguments)
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        name = name.replace("_", "-") if name.startswith("--") else name
        if equals:
            yield Piece(name, value, (word,))
        elif name in BY_NAME or REFUSED.get(name, ("", False))[1] or others.get(name):
            following = next(rest, None)
            yield Piece(name, following, (word,) if following is None else (word, following))
        else:
            yield Piece(name, None, (word,))


def whole_numbers(text: str, negative: bool = False) -> list[Value]:
    """Return the numbers of a list of numbers and ranges: `512,1024`, `128-512*2`, `1-4+1`.

    Raises ValueError where `text` is none, or a range that is empty or does not advance.
    """
    found: list[Value] = []
    for part in _parts(text):
        match = _RANGE.fullmatch(part)
        if match is None or (part.startswith("-") and not negative):
            raise ValueError("write whole numbers such as 512,1024 or a range such as 128-512*2")
        numbers = list(itertools.islice(_range(part, match), MOST_VALUES + 1))
        found += numbers
        if not numbers:
            raise ValueError(f"the range {part} is empty")
        if len(found) > MOST_VALUES:
            raise ValueError(f"these are more than {MOST_VALUES} values")
        if max(numbers) > LARGEST:
            raise ValueError(f"a number goes up to {LARGEST}")
    return found


def _range(part: str, match: re.Match[str]) -> Iterator[int]:
    first, last = int(match[1]), int(match[2] or match[1])
    step = int(match[4] or 1)
    while first <= last:
        yield first
        following = first * step if match[3] == "*" else first + step
        if following <= first:
            raise ValueError(f"the range {part} does not advance")
        first = following


def _parts(text: str) -> list[str]:
    """Return what stands between commas; one at the end is allowed."""
    parts = text.split(",")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    if parts == [""]:
        raise ValueError("there is no value")
    return parts


def _layers(text: str) -> list[Value]:
    return ["all" if isinstance(number, int) and number < 0 else number for number in whole_numbers(text, True)]


def _bits(text: str) -> list[Value]:
    return _words({"0": "off", "1": "on"}, "write 0 or 1")(text)


def _words(known: Mapping[str, str], wanted: str = "") -> Callable[[str], list[Value]]:
    def read(text: str) -> list[Value]:
        for part in _parts(text):
            if part not in known:
                raise ValueError(wanted or f"write {', '.join(list(known)[:-1])} or {list(known)[-1]}")
        return [known[part] for part in _parts(text)]

    return read


def _one_word(known: Mapping[str, str]) -> Callable[[str], list[Value]]:
    def read(text: str) -> list[Value]:
        if text not in known:
            raise ValueError(f"write one of {', '.join(filter(None, known))}")
        return [known[text]]

    return read


def _same(words: Sequence[str]) -> Callable[[str], list[Value]]:
    return _words({word: word for word in words})


def _texts(text: str) -> list[Value]:
    return [*_parts(text)]


def _pair(text: str) -> list[Value]:
    counts = [int(part) for part in text.split(",") if re.fullmatch("[0-9]{1,10}", part)]
    if len(counts) != 2 or text.count(",") != 1:
        raise ValueError("write two counts, as in 512,128")
    return [(counts[0], counts[1])]


def _count(text: str) -> list[Value]:
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError("write one whole number")
    return [int(text)]


def _masks(text: str) -> list[Value]:
    """Return the masks as `0x` and digits; llama-bench takes them without `0x` too."""
    if not all(re.fullmatch(r"(0x)?[0-9a-fA-F]{1,128}", part) for part in _parts(text)):
        raise ValueError("write a mask of CPUs to base 16, such as 0xff")
    return [hex(int(part, 16)) for part in _parts(text)]


def _shares(text: str) -> list[Value]:
    """Return each run's shares joined by a slash, without the zeros that llama-bench adds itself."""
    found: list[Value] = []
    for part in _parts(text):
        shares = re.split("[;/]+", part)
        if len(shares) > 1 and not shares[-1]:
            shares.pop()
        if not all(_SHARE.fullmatch(share) for share in shares):
            raise ValueError("write the shares of one run with a slash between them, such as 3/1")
        found.append(plain_shares(shares))
    return found


def plain_shares(shares: Sequence[str]) -> str:
    """Return the shares of devices joined by slashes, as short as can be: `5.00`, `5.00`, `0.00` is `5/5`."""
    plain = [f"{float(share):.6f}".rstrip("0").rstrip(".") for share in shares]
    while len(plain) > 1 and plain[-1] == "0":
        plain.pop()
    return "/".join(plain)


def _overrides(text: str) -> list[Value]:
    """Return each run's overrides, `none` for an empty one; llama-bench stops reading a run at two semicolons."""
    groups = [";".join(itertools.takewhile(bool, group.split(";"))) for group in text.split(",")]
    return [group or "none" for group in groups]


def _devices(text: str) -> list[Value]:
    return ["/".join(name.strip() for name in run.strip().split("/")) for run in _parts(text)]


OPTIONS = (
    Option(("-m", "--model"), "models", _texts),
    Option(("-p", "--n-prompt"), "tests.n_prompt", whole_numbers),
    Option(("-n", "--n-gen"), "tests.n_gen", whole_numbers),
    Option(("-pg",), "tests.pg", _pair),
    Option(("-d", "--n-depth"), "tests.n_depth", whole_numbers),
    Option(("-b", "--batch-size"), "params.n_batch", whole_numbers),
    Option(("-ub", "--ubatch-size"), "params.n_ubatch", whole_numbers),
    Option(("-ctk", "--cache-type-k"), "params.type_k", _same(CACHE_TYPES[1:])),  # all but f32
    Option(("-ctv", "--cache-type-v"), "params.type_v", _same(CACHE_TYPES[1:])),
    Option(("-t", "--threads"), "params.n_threads", whole_numbers),
    Option(("-C", "--cpu-mask"), "params.cpu_mask", _masks),
    Option(("--cpu-strict",), "params.cpu_strict", _bits),
    Option(("--poll",), "params.poll", whole_numbers),
    Option(("-ngl", "--n-gpu-layers"), "params.n_gpu_layers", _layers),
    Option(("-ncmoe", "--n-cpu-moe"), "params.n_cpu_moe", whole_numbers),
    Option(("-sm", "--split-mode"), "params.split_mode", _same(SPLIT_MODES)),
    Option(("-mg", "--main-gpu"), "params.main_gpu", whole_numbers, replaces=True),
    Option(("-nkvo", "--no-kv-offload"), "params.no_kv_offload", _bits),
    Option(("-fa", "--flash-attn"), "params.flash_attn", _words(FLASH, "write on, off or auto")),
    Option(("-dev", "--device"), "params.devices", _devices),
    Option(("-lm", "--load-mode"), "params.load_mode", _same(LOAD_MODES)),
    Option(("-mmp", "--mmap"), "params.mmap", _bits),
    Option(("-dio", "--direct-io"), "params.dio", _bits),
    Option(("-lzm", "--lazy-mode"), "params.lazy_mode", _same(("on", "auto", "off"))),
    Option(("-embd", "--embeddings"), "params.embeddings", _bits),
    Option(("-ts", "--tensor-split"), "params.tensor_split", _shares),
    Option(("-ot", "--override-tensor"), "params.tensor_buft_overrides", _overrides),
    Option(("-nopo", "--no-op-offload"), "params.no_op_offload", _bits),
    Option(("--no-host",), "params.no_host", _bits),
    Option(("--repack",), "params.repack", _bits),
    Option(("--prio",), "params.prio", _one_word(_PRIORITY), replaces=True),
    Option(("--numa",), "params.numa", _one_word(NUMA), replaces=True),
    Option(("-r", "--repetitions"), "repeat", _count, replaces=True),
)
"""Every option that is understood, `-mmp` and `-dio` of older versions among them."""

BY_NAME = {name: option for option in OPTIONS for name in option.names}

_DOWNLOAD = "a sweep file takes models of the hub, as `hf: USER/REPO:QUANT`; here give the file with -m"
_FORMATS = "rows go to the database; `tokfleet results --format csv` prints them, and so do json, jsonl and markdown"
_FITTING = "nothing is fitted to the memory of a device in this version; give -ngl, -ncmoe or -ot"

REFUSED: dict[str, tuple[str, bool]] = {
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"), (_DOWNLOAD, True)),
    **dict.fromkeys(("-o", "--output", "-oe", "--output-err"), (_FORMATS, True)),
    **dict.fromkeys(("-fitt", "--fit-target", "-fitc", "--fit-ctx"), (_FITTING, True)),
    **dict.fromkeys(
        ("-rpc", "--rpc"), ("servers are named in the environment: LLAMA_ARG_RPC=HOST:PORT tokfleet bench …", True)
    ),
    "--delay": ("there is no pause between tests in this version", True),
    "--no-warmup": ("a warm-up is always done, and never part of a rate", False),
    "--list-devices": ("`tokfleet fingerprint` shows the devices of this machine", False),
    "--version": ("`tokfleet --version` is ours, and `tokfleet fingerprint` shows that of llama.cpp", False),
}
"""Option that is refused -> the reason, and whether it takes a value."""

IGNORED = {
    **dict.fromkeys(("-v", "--verbose"), "the last lines of llama.cpp's log are kept with a failed row"),
    "--progress": "progress is always shown",
    "--offline": "nothing is downloaded",
}
"""Option that changes nothing here -> why."""


def known(name: str, others: Container[str] = ()) -> bool:
    """Say whether `name` is an option of llama-bench, or one of `others`."""
    return name in BY_NAME or name in REFUSED or name in IGNORED or name in others
