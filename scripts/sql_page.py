"""Writes the views' columns, and the answers of a small lab to its questions, into docs/sql.md.

python -m scripts.sql_page
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.ask import ask
from orchestrator.tables import render
from schema.view_columns import VIEW_COLUMNS, VIEW_MEANINGS

PAGE = Path(__file__).parents[1] / "docs" / "sql.md"
BEGIN, END = "<!-- columns: python -m scripts.sql_page -->", "<!-- end of columns -->"
QUESTION = re.compile(r"```sql\n(?P<sql>.*?)```\n(?:\n```text\n(?P<answer>.*?)```\n)?", re.DOTALL)


def with_columns(text: str) -> str:
    """Return the page with the columns as the code has them."""
    before, _, rest = text.partition(BEGIN)
    return "\n".join([before + BEGIN, *_columns(), END + rest.partition(END)[2]])


def with_answers(text: str, url: str) -> str:
    """Return the page with what the store at `url` answers under each question."""

    def said(found: re.Match[str]) -> str:
        return f"```sql\n{found['sql']}```\n\n```text\n{answer(url, found['sql'])}\n```\n"

    return QUESTION.sub(said, text)


def answer(url: str, sql: str) -> str:
    """Return the answer as `tokfleet sql` prints it where lines may be long."""
    found = ask(url, sql)
    return "\n".join(render(found.columns, found))


def _columns() -> Iterator[str]:
    for view, columns in VIEW_COLUMNS.items():
        yield from ("", f"### {view}", "", VIEW_MEANINGS[view])
        if columns is VIEW_COLUMNS["results"] and view != "results":
            yield from ("", "Its columns are those of `results`.")
            continue
        yield from ("", "| column | type | unit | what it is |", "|---|---|---|---|")
        yield from (f"| `{c.name}` | {c.kind} | {c.unit} | {c.meaning} |" for c in columns)
    yield ""


def main() -> None:
    """Write the page."""
    from orchestrator.migrate import upgrade
    from tests.lab import fill

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/lab.sqlite"
        upgrade(url)
        fill(url)
        text = with_answers(with_columns(PAGE.read_text(encoding="utf-8")), url)
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
