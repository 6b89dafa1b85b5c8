"""A YAML file as a tree of texts with line numbers; nothing is guessed from how a text looks.

Only the syntax of YAML 1.2 is taken from ruamel.yaml. Its resolver is never asked, so `on`, `no`,
`0123`, `12:30` and `2026-11-30` stay the text that was written; what a text means is for the reader
of the value to say. Tags, recursion and expansion without end are refused here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from schema.problem import Problem, raise_problems, show, show_name

MAX_NODES = 20_000
MAX_DEPTH = 20

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One text; `quoted` says that it stood in quotes or in a block, hence is no number, switch or null."""

    line: int
    text: str
    quoted: bool = False

    @property
    def is_null(self) -> bool:
        """Whether there is no value: nothing written, `~` or `null`."""
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping as written, and its value; `anchored` says that the value carries an `&anchor`."""

    line: int
    key: str
    value: "Node"
    anchored: bool = False


@dataclass(frozen=True, slots=True)
class Mapping:
    """Entries in the order of the file, merged ones (`<<`) last; no key comes twice."""

    line: int
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Entry | None:
        """Return the entry named `key`, or None."""
        return next((entry for entry in self.entries if entry.key == key), None)


Node = Scalar | Sequence | Mapping


def parse_yaml(
    text: str, filename: str, noun: str = "sweep", keys: tuple[str, str] = ("models", "tests")
) -> tuple[Mapping, list[Problem]]:
    """Return the mapping that `text` is, and the problems that leave it readable: duplicate keys and tags.

    What the file is, `noun`, and two `keys` that it may hold stand in messages.

    SweepError where no tree can be had: not YAML, not a mapping, several documents, an alias inside
    itself, or more than MAX_NODES values after the aliases are written out.
    """
    tree = _Tree(noun)
    try:
        root = _read_mapping(tree, text.removeprefix("\ufeff"), keys)
    except _RefusedError as refused:
        raise_problems(filename, [*tree.problems, Problem(refused.line, "", refused.text)])
        raise
    return root, tree.problems


class _RefusedError(Exception):
    """The text cannot be read on from `line`."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def _read_mapping(tree: "_Tree", text: str, keys: tuple[str, str]) -> Mapping:
    for event in _events(text):
        tree.take(event)
    if isinstance(tree.root, Mapping):
        return tree.root
    raise _RefusedError(*_not_a_mapping(tree.root, tree.noun, keys))


def _not_a_mapping(root: Node | None, noun: str, keys: tuple[str, str]) -> tuple[int, str]:
    if root is None or (isinstance(root, Scalar) and root.is_null):
        return 0, f"the file is empty; a {noun} needs `{keys[0]}:` at least."
    if isinstance(root, Sequence):
        return root.line, f"the file is a list; a {noun} is made of keys such as `{keys[0]}:` and `{keys[1]}:`."
    found = show(root.text) if isinstance(root, Scalar) else "something else"
    return (
        root.line,
        f"the file is the text {found}; a {noun} is made of `key: value` lines, with a blank after the colon.",
    )


def _events(text: str) -> Iterator[Any]:
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        code = ord(control.group())
        raise _RefusedError(
            line, f"the character U+{code:04X} has no place in a text file; remove it, or save as UTF-8."
        )
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except MarkedYAMLError as error:
        raise _syntax_error(error, text) from None
    except Exception as error:
        # ruamel lets the errors of what it calls through, such as OverflowError from chr() for "\UFFFFFFFF"
        raise _RefusedError(0, f"this is not YAML: {' '.join(str(error).split())[:200]}.") from None


def _syntax_error(error: MarkedYAMLError, text: str) -> _RefusedError:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return _RefusedError(0, f"this is not YAML: {error.problem}.")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    problem = str(error.problem)
    if "\t" in line and "\\t" in problem:
        return _RefusedError(mark.line + 1, "there is a tab before a value or key; YAML wants blanks.")
    if "mapping values are not allowed" in problem:
        hint = "there is a second `key:` in this place; check the indentation, and quote a text that holds `: `."
        return _RefusedError(mark.line + 1, hint)
    start = error.context_mark.line if error.context_mark else mark.line
    began = f" (what begins in line {start + 1} is not closed before this)" if start < mark.line else ""
    return _RefusedError(mark.line + 1, f"this is not YAML: {problem}{began}.")


@dataclass(slots=True)
class _Frame:
    """A list or mapping whose end has not come yet; `key` is the key that waits for its value."""

    line: int
    is_mapping: bool
    anchor: str | None
    nodes_before: int
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    merged: list[Entry] = field(default_factory=list)
    merge_line: int = 0
    key: Scalar | None = None


class _Tree:
    """Builds the tree from the parser's events without recursion, counting what the aliases expand to."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        """Add one event of ruamel's parser."""
        line = event.start_mark.line + 1
        match type(event).__name__:
            case "DocumentStartEvent":
                self._start_document(line)
            case "ScalarEvent":
                self._scalar(event, line)
            case "AliasEvent":
                self._alias(event.anchor, line)
            case "MappingStartEvent" | "SequenceStartEvent":
                self._open(event, line)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._close()

    def _start_document(self, line: int) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _RefusedError(line, f"a second document begins here (`---`); write one {self.noun} per file.")

    def _count(self, nodes: int, line: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _RefusedError(line, f"here the file passes {MAX_NODES} values, aliases written out; make it smaller.")

    def _check_tag(self, event: Any, line: int) -> None:
        if event.tag:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            self.problems.append(Problem(line, "", f"the tag {show(tag)} has no meaning here; write the plain value."))

    def _scalar(self, event: Any, line: int) -> None:
        key = self._frames[-1].key if self._frames else None
        if key is not None and event.value == "":
            line = key.line  # the parser notices that there is nothing only at the next key
        self._count(1, line)
        self._check_tag(event, line)
        if _SURROGATE.search(event.value):
            raise _RefusedError(line, f"{show(event.value)} holds half of a character (a surrogate); write it whole.")
        scalar = Scalar(line, event.value, quoted=event.style is not None)
        if event.anchor:
            self._anchors[event.anchor] = (scalar, 1)
        self._add(scalar, anchored=event.anchor is not None)

    def _alias(self, name: str, line: int) -> None:
        if any(frame.anchor == name for frame in self._frames):
            raise _RefusedError(line, f"the alias *{show_name(name)} stands inside what it repeats.")
        if name not in self._anchors:
            raise _RefusedError(line, f"the alias *{show_name(name)} has no anchor &{show_name(name)} before it.")
        node, nodes = self._anchors[name]
        self._count(nodes, line)
        self._add(node, anchored=False)

    def _open(self, event: Any, line: int) -> None:
        self._count(1, line)
        self._check_tag(event, line)
        if len(self._frames) >= MAX_DEPTH:
            raise _RefusedError(line, f"lists or mappings stand more than {MAX_DEPTH} deep in each other here.")
        is_mapping = type(event).__name__ == "MappingStartEvent"
        self._frames.append(_Frame(line, is_mapping, event.anchor, self._nodes - 1))

    def _close(self) -> None:
        frame = self._frames.pop()
        node: Node
        if frame.is_mapping:
            merged = {entry.key: entry for entry in reversed(frame.merged) if entry.key not in frame.entries}
            node = Mapping(frame.line, (*frame.entries.values(), *reversed(merged.values())))
        else:
            node = Sequence(frame.line, tuple(frame.items))
        if frame.anchor:
            self._anchors[frame.anchor] = (node, self._nodes - frame.nodes_before)
        self._add(node, anchored=frame.anchor is not None)

    def _add(self, node: Node, *, anchored: bool) -> None:
        if not self._frames:
            self.root = node
            return
        frame = self._frames[-1]
        if not frame.is_mapping:
            frame.items.append(node)
        elif frame.key is not None:
            key, frame.key = frame.key, None
            self._add_entry(frame, key, node, anchored=anchored)
        elif isinstance(node, Scalar):
            frame.key = node
        else:
            raise _RefusedError(node.line, "a list or mapping stands where a key belongs; a key is one word.")

    def _add_entry(self, frame: _Frame, key: Scalar, value: Node, *, anchored: bool) -> None:
        if key.text == "<<" and not key.quoted:
            self._merge(frame, key, value)
        elif key.text in frame.entries:
            first = frame.entries[key.text].line
            text = f"this key stands twice, first in line {first} and again in line {key.line}; keep one of them."
            self.problems.append(Problem(key.line, key.text, text))
        else:
            frame.entries[key.text] = Entry(key.line, key.text, value, anchored)

    def _merge(self, frame: _Frame, key: Scalar, value: Node) -> None:
        sources = value.items if isinstance(value, Sequence) else (value,)
        if frame.merge_line:
            text = f"this key stands twice, first in line {frame.merge_line}; write one `<<: [*a, *b]`."
            self.problems.append(Problem(key.line, "<<", text))
        frame.merge_line = key.line
        for source in sources:
            if isinstance(source, Mapping):
                frame.merged.extend(source.entries)
            else:
                self.problems.append(Problem(key.line, "<<", "only mappings can be merged; write `<<: *anchor`."))
