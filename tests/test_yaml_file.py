"""The YAML reader keeps what was written, with its line, and refuses what is no plain tree of texts."""

from pathlib import Path

import pytest

from schema.errors import SweepError
from schema.problem import Problem, raise_problems
from schema.text_file import decode_utf8, read_text
from schema.yaml_file import MAX_NODES, Mapping, Scalar, Sequence, parse_yaml


def read(text: str) -> Mapping:
    mapping, problems = parse_yaml(text, "f.yaml")
    assert problems == []
    return mapping


def refusal(text: str) -> str:
    with pytest.raises(SweepError) as caught:
        parse_yaml(text, "f.yaml")
    return str(caught.value)


def value(mapping: Mapping, key: str) -> object:
    entry = mapping.get(key)
    assert entry is not None
    return entry.value


@pytest.mark.parametrize(
    "text",
    ["on", "off", "yes", "No", "true", "0123", "0o17", "0x1F", "1_000", "1e3", "12:30", ".inf", "2026-11-30", "1.10"],
)
def test_a_scalar_stays_the_text_that_was_written(text: str) -> None:
    assert value(read(f"a: {text}\n"), "a") == Scalar(1, text)


def test_a_key_stays_the_text_that_was_written() -> None:
    assert [entry.key for entry in read("on: 1\nno: 2\n1: 3\n~: 4\n").entries] == ["on", "no", "1", "~"]


def test_every_value_and_key_knows_its_line() -> None:
    mapping = read("# comment\na:\n  - 1\n  - 2\nb: {c: d}\n")
    assert value(mapping, "a") == Sequence(3, (Scalar(3, "1"), Scalar(4, "2")))
    assert [entry.line for entry in mapping.entries] == [2, 5]


@pytest.mark.parametrize("text", ["", "~", "null", "NULL"])
def test_nothing_tilde_and_null_are_no_value(text: str) -> None:
    node = value(read(f"a: {text}\n"), "a")
    assert isinstance(node, Scalar)
    assert node.is_null


@pytest.mark.parametrize("text", ["'null'", '""', "'~'", "|\n  null\n"])
def test_a_quoted_null_is_a_text(text: str) -> None:
    node = value(read(f"a: {text}\n"), "a")
    assert isinstance(node, Scalar)
    assert node.quoted
    assert not node.is_null


def test_a_yaml_1_1_directive_does_not_bring_back_the_old_booleans() -> None:
    assert value(read("%YAML 1.1\n---\na: on\n"), "a") == Scalar(3, "on")


def test_a_duplicate_key_is_a_problem_that_names_both_lines_and_reading_goes_on() -> None:
    mapping, problems = parse_yaml("a: 1\nb: {c: 1,\n  c: 2}\na: 3\n", "f.yaml")
    assert [(problem.line, problem.key) for problem in problems] == [(3, "c"), (4, "a")]
    assert "first in line 1 and again in line 4" in problems[1].text
    assert value(mapping, "a") == Scalar(1, "1")


def test_an_explicit_key_overrides_a_merged_one_without_being_a_duplicate() -> None:
    tests = value(read("x-d: &d {n_gen: 64, n_prompt: 128}\ntests:\n  <<: *d\n  n_prompt: 256\n"), "tests")
    assert isinstance(tests, Mapping)
    assert {entry.key: entry.value.text for entry in tests.entries if isinstance(entry.value, Scalar)} == {
        "n_prompt": "256",
        "n_gen": "64",
    }


def test_the_first_of_several_merged_mappings_wins() -> None:
    merged = value(read("a: &a {x: 1}\nb: &b {x: 2, y: 3}\nc: {<<: [*a, *b]}\n"), "c")
    assert isinstance(merged, Mapping)
    assert [(entry.key, entry.value) for entry in merged.entries] == [("x", Scalar(1, "1")), ("y", Scalar(2, "3"))]


def test_merging_what_is_no_mapping_or_merging_twice_is_a_problem() -> None:
    _, problems = parse_yaml("a: &a {x: 1}\nb:\n  <<: 3\n  <<: *a\n", "f.yaml")
    assert [problem.line for problem in problems] == [3, 4]


def test_an_anchor_marks_its_entry() -> None:
    assert [entry.anchored for entry in read("a: &a {x: 1}\nb: *a\n").entries] == [True, False]


@pytest.mark.parametrize("tag", ["!!int", "!foo", "!!python/object:os.system", "!<x>"])
def test_a_tag_is_a_problem(tag: str) -> None:
    _, problems = parse_yaml(f"a: 1\nb: {tag} '3'\n", "f.yaml")
    assert problems[0].line == 2
    assert "has no meaning here; write the plain value" in problems[0].text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f.yaml: the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("---\n", "the file is empty"),
        ("~\n", "the file is empty"),
        ("- a\n", "f.yaml:1: the file is a list"),
        ("key:value\n", "f.yaml:1: the file is the text 'key:value'"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document begins here"),
        ("a:\n\tb: 1\n", "f.yaml:2: there is a tab"),
        ("a:\t1\n", "f.yaml:1: there is a tab"),
        ("a: 1\n b: 2\n", "f.yaml:2: there is a second `key:`"),
        ("a: [1,\nb: [2\n", "what begins in line"),
        ("a: 'x\nb: 1\n", "what begins in line 1 is not closed"),
        ("a: *x\n", "f.yaml:1: the alias *x has no anchor"),
        ("a: &a [1, *a]\n", "f.yaml:1: the alias *a stands inside what it repeats"),
        ("a: &a {b: {c: *a}}\n", "the alias *a stands inside what it repeats"),
        ("? [a, b]\n: 1\n", "f.yaml:1: a list or mapping stands where a key belongs"),
        ("a: b\x00c\n", "f.yaml:1: the character U+0000"),
        ("a: 1\nb: \x1b[31m\n", "f.yaml:2: the character U+001B"),
        ("a: 1\nb: \x9b31m\n", "f.yaml:2: the character U+009B"),
        ("a: 1\nb: \uffff\n", "f.yaml:2: the character U+FFFF"),
        ('a: "\\UFFFFFFFF"\n', "this is not YAML"),
        ('a: "\\ud800"\n', "half of a character"),
        ("%YAML 3.0\n---\na: 1\n", "this is not YAML"),
        ("a: @b\n", "f.yaml:1: this is not YAML"),
    ],
)
def test_what_is_no_single_mapping_is_refused_with_its_line(text: str, says: str) -> None:
    assert says in refusal(text)


def test_an_alias_bomb_is_refused_before_it_is_written_out() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(20)
    )
    assert f"passes {MAX_NODES} values" in refusal(bomb)


@pytest.mark.parametrize("text", ["a: " + "[" * 3000, "- " * 3000, "a: " + "{b: " * 3000, "[\n" * 3000])
def test_deep_nesting_is_refused(text: str) -> None:
    assert "more than 20 deep" in refusal(text)


def test_a_byte_order_mark_is_ignored_and_windows_line_ends_are_read() -> None:
    text = decode_utf8(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f.yaml")
    assert [entry.line for entry in read(text).entries] == [1, 2]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_refused_by_name(encoding: str) -> None:
    data = "\ufeffa: 1\n".encode(encoding) if encoding.endswith("be") else "a: 1\n".encode(encoding)
    with pytest.raises(SweepError, match="UTF-16; save it as UTF-8"):
        decode_utf8(data, "f.yaml")


def test_bytes_that_are_not_utf_8_are_refused_with_their_line() -> None:
    with pytest.raises(SweepError, match=r"f\.yaml:2: the byte 0xfc is not UTF-8"):
        decode_utf8(b"a: 1\nb: \xfcber\n", "f.yaml")


def test_a_missing_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("a: 1\n")
    with pytest.raises(SweepError, match=r"no such file\. The nearest name in its directory is 'sweep\.yaml'"):
        read_text(tmp_path / "swep.yaml")
    with pytest.raises(SweepError, match="does not exist"):
        read_text(tmp_path / "nowhere" / "sweep.yaml")


def test_a_directory_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="this is a directory"):
        read_text(tmp_path)
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(50 << 20)
    with pytest.raises(SweepError, match="larger than 1 MiB"):
        read_text(huge)


def test_a_path_with_a_nul_is_refused_in_words() -> None:
    with pytest.raises(SweepError, match="cannot be read"):
        read_text(Path("a\0b.yaml"))


def test_problems_come_in_the_order_of_the_file_each_once_and_not_without_end() -> None:
    problems = [Problem(number, "k", "wrong.") for number in range(100, 0, -1)] + [Problem(1, "k", "wrong.")]
    with pytest.raises(SweepError) as caught:
        raise_problems("f.yaml", problems)
    assert caught.value.problems[0] == "f.yaml:1: k: wrong."
    assert caught.value.problems[-1] == "f.yaml: and 50 more problems after these."
    assert len(caught.value.problems) == 51


def test_names_in_messages_cannot_steer_the_terminal() -> None:
    with pytest.raises(SweepError) as caught:
        raise_problems("a\x1b[31m.yaml", [Problem(1, "b\nc", "wrong.")])
    assert str(caught.value) == r"'a\x1b[31m.yaml':1: 'b\nc': wrong."
