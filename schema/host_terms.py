"""An entry of a sweep's `hosts` as terms that must all hold, such as `gpu ram_gib>=32 not laptop` (stdlib only).

The text is taken apart here and looked up in tables; nothing of it is ever evaluated.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from schema.problem import show

NUMBER_KEYS = ("ram_gib", "vram_gib", "cores", "threads", "gpus")
TEXT_KEYS = ("arch", "os", "cpu", "gpu", "name")
FACTS = (*NUMBER_KEYS, *TEXT_KEYS)
WORDS = ("gpu", "cpu", "laptop")
ORDER_OPERATORS = ("<=", ">=", "<", ">")
LABEL_PREFIX = "label."
MOST_TERMS = 50

ISA_WORDS = {
    "avx": ("avx",),
    "avx2": ("avx2",),
    "fma": ("fma",),
    "f16c": ("f16c",),
    "avx512": ("avx512f",),
    "avx512f": ("avx512f",),
    "avx512_vnni": ("avx512_vnni",),
    "avx512_bf16": ("avx512_bf16",),
    "avx_vnni": ("avx_vnni",),
    "vnni": ("avx512_vnni", "avx_vnni"),
    "amx": ("amx_tile",),
    "amx_tile": ("amx_tile",),
    "amx_int8": ("amx_int8",),
    "amx_bf16": ("amx_bf16",),
    "neon": ("neon", "asimd"),
    "asimd": ("asimd", "neon"),
    "asimddp": ("asimddp",),
    "dotprod": ("asimddp",),
    "asimdhp": ("asimdhp",),
    "i8mm": ("i8mm",),
    "bf16": ("bf16",),
    "sve": ("sve",),
    "sve2": ("sve2",),
    "sme": ("sme",),
    "sme2": ("sme2",),
    "rvv": ("rvv",),
    "vsx": ("vsx",),
    "mma": ("mma",),
    "lsx": ("lsx",),
    "lasx": ("lasx",),
    "vx": ("vx",),
    "vxe": ("vxe",),
}
"""A word for instructions that every core has -> the names in `Hardware.isa`, any of which will do.

A 64-bit ARM core calls NEON `asimd`. What a person calls AVX-512 is its foundation.
"""

_ISA_SPELLINGS = {name.replace("_", ""): name for name in ISA_WORDS}

Kind = Literal["word", "name", "isa", "number", "text", "label"]

_TERM = re.compile(
    r"""(?P<key>[A-Za-z_][\w./-]*) [ ]* (?P<operator>[=!<>~]+) [ ]* (?P<value>"[^"]*"|'[^']*'|[^\s=!<>~"']+)?
      | (?P<word>[^\s=!<>~"'&|(),]+)""",
    re.VERBOSE | re.ASCII,
)
_FORM = (
    "write a host's name, `gpu`, `cpu`, `laptop`, `avx512` or the like, a condition such as ram_gib>=32 or rack=b, "
    "or `not` before any of them, with blanks between terms."
)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition; `negated` where `not` stands before it.

    Without operator, `kind` is "word" (one of WORDS), "isa" (a key of ISA_WORDS) or "name" (a host's), and `value`
    says which. With one it is "number", "text" or "label", of the fact or the label `key`.
    """

    kind: Kind
    key: str
    operator: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        """Return the term as it may be written."""
        value = f'"{self.value}"' if re.search(r"\s", self.value) else self.value
        key = self.key if self.key not in FACTS or self.kind != "label" else f"{LABEL_PREFIX}{self.key}"
        return f"{'not ' if self.negated else ''}{key}{self.operator}{value}"


def parse_host_entry(entry: str) -> tuple[Term, ...]:
    """Return the terms of `entry`, all of which a host must fulfil; ValueError says what is wrong with one of them."""
    terms: list[Term] = []
    position, negated, text = 0, False, entry.strip()
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise ValueError(f"{show(text[position:])} is not a term; {_FORM}")
        if _is_not(found) and not negated:
            negated = True
        else:
            terms.append(_term(found, negated))
            negated = False
        position = _next_term(text, found)
    if negated:
        raise ValueError("'not' is the last word; a term must stand after it, such as `not laptop`.")
    if not terms:
        raise ValueError(f"the entry is empty; {_FORM}")
    if len(terms) > MOST_TERMS:
        raise ValueError(f"there are {len(terms)} terms; write at most {MOST_TERMS}.")
    return tuple(terms)


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Return what `word` may have been meant for: the nearest of `names` and of the words that mean something here."""
    found = difflib.get_close_matches(word, [*names, *WORDS, *ISA_WORDS], n=1)
    return found[0] if found else None


def _is_not(found: re.Match[str]) -> bool:
    return (found["word"] or "").lower() == "not"


def _next_term(text: str, found: re.Match[str]) -> int:
    """Return where the next term starts; ValueError where this one does not end with a blank."""
    end = found.end()
    if end < len(text) and not text[end].isspace():
        raise ValueError(f"{show(text[found.start() :])} is not a term; {_FORM}")
    return end + len(text[end:]) - len(text[end:].lstrip())


def _term(found: re.Match[str], negated: bool) -> Term:
    if found["word"] is not None:
        return _word_term(found["word"], negated)
    key, operator, value = found["key"], found["operator"], (found["value"] or "").strip("\"'")
    fact = key.lower()
    if not value:
        raise ValueError(f"{show(found.group())} has no value; write one after the operator, such as ram_gib>=32.")
    if operator not in ("=", "!=", *ORDER_OPERATORS):
        raise ValueError(f"{show(operator)} is no operator; write one of = != >= <= > <.")
    if fact in NUMBER_KEYS:
        return _number_term(fact, operator, value, negated)
    if operator in ORDER_OPERATORS:
        raise ValueError(_no_order(key, value))
    if fact in TEXT_KEYS:
        return Term("text", fact, operator, value, negated)
    return _label_term(key, operator, value, negated)


def _word_term(word: str, negated: bool) -> Term:
    small = word.lower()
    if small in ("and", "or", "not"):
        raise ValueError(
            f"{show(word)} is no term; blanks mean and, several entries mean or, and one `not` stands before a term."
        )
    if small in WORDS:
        return Term("word", "", "", small, negated)
    if small.replace("_", "").replace("-", "") in _ISA_SPELLINGS:
        return Term("isa", "", "", _ISA_SPELLINGS[small.replace("_", "").replace("-", "")], negated)
    return Term("name", "", "", word, negated)


def _number_term(key: str, operator: str, value: str, negated: bool) -> Term:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value):
        raise ValueError(f"{show(value)} is not a number for `{key}`; write plain digits, such as {key}>=8.")
    return Term("number", key, operator, value, negated)


def _no_order(key: str, value: str) -> str:
    if key.lower() in TEXT_KEYS:
        return f"`{key.lower()}` is a text and has no order; write {key}={value} or {key}!={value}."
    near = difflib.get_close_matches(key.lower(), NUMBER_KEYS, n=1)
    known = f"the nearest is `{near[0]}`" if near else f"these are: {', '.join(NUMBER_KEYS)}"
    return f"{show(key)} is no number of a host; {known}."


def _label_term(key: str, operator: str, value: str, negated: bool) -> Term:
    """Return the condition on a label; a key that is nearly a fact's is taken for a slip."""
    if key.startswith(LABEL_PREFIX) and len(key) > len(LABEL_PREFIX):
        return Term("label", key.removeprefix(LABEL_PREFIX), operator, value, negated)
    near = difflib.get_close_matches(key.lower(), FACTS, n=1, cutoff=0.75)
    if near:
        raise ValueError(
            f"{show(key)} is no fact of a host; the nearest is `{near[0]}`. "
            f"A label of this name is written {LABEL_PREFIX}{key}{operator}{value}."
        )
    return Term("label", key, operator, value, negated)
