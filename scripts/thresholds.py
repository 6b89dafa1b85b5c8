"""Writes the table of thresholds into docs/conditions.md, between its two marks.

python -m scripts.thresholds
"""

from pathlib import Path

from worker.conditions.thresholds import table

PAGE = Path(__file__).parents[1] / "docs" / "conditions.md"
BEGIN, END = "<!-- thresholds: python -m scripts.thresholds -->", "<!-- end of thresholds -->"


def page() -> str:
    """Return the page with the table as the code has it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *table(), END + after])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
