"""docs/sql.md: every column is described, and every question has on both databases the answer that stands there."""

import re
from collections.abc import Iterator

import pytest

from schema.errors import TokfleetError
from schema.view_columns import VIEW_COLUMNS, VIEW_MEANINGS
from schema.views import VIEWS
from scripts.sql_page import PAGE, QUESTION, answer, with_answers, with_columns
from tests.asking import let_read
from tests.lab import fill
from tests.postgres import Server
from tests.stores import answers, new_store

TEXT = PAGE.read_text(encoding="utf-8")
QUESTIONS = [found["sql"] for found in QUESTION.finditer(TEXT)]
KINDS = {
    "text": {"text", "character varying"},
    "integer": {"bigint", "integer"},
    "real": {"double precision"},
    "boolean": {"boolean"},
    "time": {"timestamp with time zone"},
    "json": {"jsonb"},
}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of the small lab's store, which is only read."""
    home = tmp_path_factory.mktemp("home")
    if request.param == "sqlite":
        url = f"sqlite:///{new_store(home)}"
    else:
        server: Server = request.getfixturevalue("postgres")
        url = server.url(server.create(request.getfixturevalue("postgres_template")))
    fill(url)
    with pytest.MonkeyPatch.context() as patch:
        yield let_read(url, home, patch)


@pytest.mark.parametrize("sql", QUESTIONS, ids=lambda sql: str(QUESTIONS.index(sql) + 1))
def test_a_question_of_the_page_has_the_answer_of_the_page(lab: str, sql: str) -> None:
    (expected,) = (found["answer"] for found in QUESTION.finditer(TEXT) if found["sql"] == sql)
    assert answer(lab, sql) + "\n" == expected
    assert len(expected.splitlines()) > 2


def test_the_page_has_at_least_twenty_questions_and_shows_every_view() -> None:
    assert len(set(QUESTIONS)) >= 20
    asked = " ".join(QUESTIONS)
    assert all(
        re.search(rf"\b{view}\b", asked) for view in ("results", "latest", "failures", "samples", "hosts", "probes")
    )


def test_the_page_has_the_columns_as_the_code_has_them() -> None:
    assert with_columns(TEXT) == TEXT, "run python -m scripts.sql_page"


def test_every_column_of_every_view_is_described_and_no_other(lab: str) -> None:
    assert list(VIEW_COLUMNS) == list(VIEWS) == list(VIEW_MEANINGS)
    for view, columns in VIEW_COLUMNS.items():
        described = [column.name for column in columns]
        there = columns_of(lab, view)
        assert sorted(set(there) - set(described)) == [], f"{view}: describe them in schema/view_columns.py"
        assert sorted(set(described) - set(there)) == [], view
        assert len(described) == len(set(described)), view
        assert all(column.meaning for column in columns)


def test_every_column_has_the_type_that_is_told(lab: str) -> None:
    if lab.startswith("sqlite"):
        return  # a column of a view has no type there
    for view, columns in VIEW_COLUMNS.items():
        query = f"SELECT column_name, data_type FROM information_schema.columns WHERE table_name = '{view}'"
        types = dict(answers(lab, query))
        wrong = {c.name: (c.kind, types[c.name]) for c in columns if types[c.name] not in KINDS[c.kind]}
        assert wrong == {}, view


def columns_of(url: str, view: str) -> list[str]:
    if url.startswith("sqlite"):
        return [row[1] for row in answers(url, f"PRAGMA table_info({view})")]
    return [
        row[0]
        for row in answers(url, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{view}'")
    ]


def test_a_page_is_written_anew_with_its_answers(lab: str) -> None:
    assert with_answers("```sql\nSELECT COUNT(*) AS n FROM hosts\n```\n", lab) == (
        "```sql\nSELECT COUNT(*) AS n FROM hosts\n```\n\n```text\nn\n-\n3\n```\n"
    )
    with pytest.raises(TokfleetError):
        with_answers("```sql\nDELETE FROM run\n```\n", lab)
