"""An entry of a sweep's `hosts` as terms that must all hold, such as `gpu ram_gib>=32` (stdlib only).

The text is taken apart here and looked up in tables; nothing of it is ever evaluated.
"""

import difflib
import re
from dataclasses import dataclass

from schema.problem import show

NUMBER_KEYS = ("ram_gib", "vram_gib", "cores")
TEXT_KEYS = ("arch", "os", "cpu", "gpu")
WORDS = ("gpu", "cpu")
ORDER_OPERATORS = ("<=", ">=", "<", ">")

_TERM = re.compile(
    r"""(?P<key>[A-Za-z_][\w-]*) [ ]* (?P<operator>[=!<>~]+) [ ]* (?P<value>"[^"]*"|'[^']*'|[^\s=!<>~"']+)?
      | (?P<word>[^\s=!<>~"'&|(),]+)""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. Without operator, `value` is `gpu`, `cpu` or a host's name and `key` is "word" or "name"."""

    key: str
    operator: str
    value: str


def parse_host_entry(entry: str) -> tuple[Term, ...]:
    """Return the terms of `entry`, all of which a host must fulfil; ValueError says what is wrong with one of them."""
    terms = []
    position = 0
    text = entry.strip()
    while position < len(text):
        found = _TERM.match(text, position)
        if found is None:
            raise ValueError(f"{show(text[position:])} is not a term; {_FORM}")
        terms.append(_term(found))
        position = found.end()
        if position < len(text) and not text[position].isspace():
            raise ValueError(f"{show(text[found.start() :])} is not a term; {_FORM}")
        position += len(text[position:]) - len(text[position:].lstrip())
    if not terms:
        raise ValueError(f"the entry is empty; {_FORM}")
    return tuple(terms)


_FORM = "write a host's name, `gpu`, `cpu`, or a condition such as ram_gib>=32, with blanks between terms."


def _term(found: re.Match[str]) -> Term:
    word = found["word"]
    if word is not None and word.lower() in ("and", "or", "not"):
        raise ValueError(f"{show(word)} is no term; blanks mean and, several entries mean or, != means not.")
    if word is not None:
        return Term("word", "", word.lower()) if word.lower() in WORDS else Term("name", "", word)
    key, operator, value = found["key"].lower(), found["operator"], (found["value"] or "").strip("\"'")
    if key not in NUMBER_KEYS and key not in TEXT_KEYS:
        near = difflib.get_close_matches(key, (*NUMBER_KEYS, *TEXT_KEYS), n=1)
        known = f"the nearest is `{near[0]}`" if near else f"known: {', '.join((*NUMBER_KEYS, *TEXT_KEYS))}"
        raise ValueError(f"{show(found['key'])} is no fact of a host; {known}.")
    if not value:
        raise ValueError(f"{show(found.group())} has no value; write one after the operator, such as ram_gib>=32.")
    if operator not in ("=", "!=", *ORDER_OPERATORS):
        raise ValueError(f"{show(operator)} is no operator; write one of = != >= <= > <.")
    return _number_term(key, operator, value) if key in NUMBER_KEYS else _text_term(key, operator, value)


def _number_term(key: str, operator: str, value: str) -> Term:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value):
        raise ValueError(f"{show(value)} is not a number for `{key}`; write plain digits, such as {key}>=8.")
    return Term(key, operator, value)


def _text_term(key: str, operator: str, value: str) -> Term:
    if operator in ORDER_OPERATORS:
        raise ValueError(f"`{key}` is a text and has no order; write {key}={value} or {key}!={value}.")
    return Term(key, operator, value)
