"""The experts of a mixture-of-experts model: how many there are, and how many one token uses (stdlib only)."""

import re
from dataclasses import dataclass

from worker.gguf import Header

MAX_EXPERTS = 1024
"""LLAMA_MAX_EXPERTS."""

_ROUTED = re.compile(r"_exps\.|\.ffn_(gate|up|down)\.\d+\.")
"""Tensors of all experts of a layer in one, or (older files) of one expert each; shared experts are neither."""


@dataclass(frozen=True, slots=True)
class Experts:
    """`count` experts in each layer of which a token uses `used`; None where the file does not tell."""

    count: int | None
    used: int | None

    @property
    def share(self) -> tuple[int, int]:
        """The part of the experts' weights that one token reads, as a fraction; 1/1 where it is not known."""
        if self.count and self.used and self.used <= self.count:
            return self.used, self.count
        return 1, 1

    @property
    def text(self) -> str:
        """Both numbers as people read them: `8 of 128`."""
        return f"{'?' if self.used is None else self.used} of {'?' if self.count is None else self.count}"


def is_routed(name: str) -> bool:
    """Tell whether the tensor holds weights of experts that are chosen for each token."""
    return _ROUTED.search(name) is not None


def experts(header: Header, architecture: str) -> Experts | None:
    """Return the experts that the metadata tells of, where it or the tensors speak of any; else None."""
    count, used = header.integer(f"{architecture}.expert_count"), _used(header, architecture)
    if max(count or 0, used or 0) <= 1 and not any(is_routed(tensor.name) for tensor in header.tensors):
        return None  # some dense models say that they have one expert
    return Experts(count, used)


def experts_refused(header: Header, architecture: str) -> str | None:
    """Return why llama.cpp refuses the experts of this file (it aborts on some), or None."""
    found = experts(header, architecture)
    if found is None:
        return None
    keys = f"{architecture}.expert_count", f"{architecture}.expert_used_count"
    for key, number in zip(keys, (found.count, found.used), strict=True):
        if number is None:
            found_there = "is not a number" if key in header.metadata else "is missing"
            return f"has experts, but {key} {found_there}, so llama.cpp cannot load it."
    count, used = found.count or 0, found.used or 0
    if not 0 < count <= MAX_EXPERTS:
        return f"says {keys[0]} is {count}, which llama.cpp refuses: 1 to {MAX_EXPERTS} can be."
    if not 0 < used <= count:
        return f"says {keys[1]} is {used} of {count} experts, which cannot be, so llama.cpp cannot load it."
    return None


def _used(header: Header, architecture: str) -> int | None:
    """Return the experts that a token uses; the most of any layer where the file tells it for each."""
    key = f"{architecture}.expert_used_count"
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        return max((int(item) for item in value if isinstance(item, int)), default=None)
    return header.integer(key)
