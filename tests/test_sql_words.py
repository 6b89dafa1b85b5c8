import pytest

from orchestrator.sql_words import check_parameters, first_word, value_of, with_percent
from schema.errors import SqlError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("5", 5), ("-12", -12), ("0", 0), ("1.5", 1.5), ("-2e3", -2000.0)),
        *(("007", 7.0), ("", ""), ("box-a", "box-a"), ("1e", "1e"), ("0x10", "0x10"), ("inf", "inf"), ("nan", "nan")),
        *(('"3.10"', "3.10"), ('"5"', "5"), ('"', '"'), ('"a"b"', '"a"b"'), ("9" * 30, 1e30)),
    ],
)
def test_a_value_is_a_number_where_it_looks_like_one_and_a_text_in_double_quotes(text: str, value: object) -> None:
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT :a, :b_1", "SELECT %(a)s, %(b_1)s"),
        ("SELECT ':a', \":a\", x::int, :a", "SELECT ':a', \":a\", x::int, %(a)s"),
        ("SELECT 'it''s :a' -- :a\n, :a /* :a\n */", "SELECT 'it''s :a' -- :a\n, %(a)s /* :a\n */"),
        ("SELECT $$ :a $$, $x$ :a $$ $x$, :a", "SELECT $$ :a $$, $x$ :a $$ $x$, %(a)s"),
        ("SELECT a % 2, '%:a%', :a LIKE '%x'", "SELECT a %% 2, '%%:a%%', %(a)s LIKE '%%x'"),
        ("SELECT a[1:2], :a", "SELECT a[1:2], %(a)s"),
    ],
)
def test_parameters_are_found_only_where_they_are_some(sql: str, written: str) -> None:
    assert with_percent(sql) == written


def test_exactly_the_parameters_of_the_question_are_taken() -> None:
    check_parameters("SELECT :a, :b, :a", {"a": 1, "b": "x"})
    check_parameters("SELECT ':a'", {})
    with pytest.raises(SqlError, match="asks for a value of :b"):
        check_parameters("SELECT :a, :b", {"a": 1})
    with pytest.raises(SqlError, match=r"has no :hosts\. Did you mean host"):
        check_parameters("SELECT :host", {"hosts": 1, "host": 1})


@pytest.mark.parametrize(
    ("sql", "word"),
    [("select 1", "SELECT"), ("  ;-- a\n/* b */ With x", "WITH"), ("", ""), ("/* open", ""), ("(select 1)", "")],
)
def test_the_first_word_is_found_behind_remarks(sql: str, word: str) -> None:
    assert first_word(sql) == word
