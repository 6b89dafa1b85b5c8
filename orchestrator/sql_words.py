"""What is wrong with a question in SQL, in words for the person who asked; and the values of its parameters (pure)."""

import difflib
import json
import re
from collections.abc import Collection, Iterator, Mapping

from schema.errors import SqlError
from schema.view_columns import VIEW_COLUMNS
from schema.views import VIEWS

Relations = Mapping[str, Collection[str]]
"""The names of tables and views, and of the columns of each."""

Value = int | float | str

WORDS = ("SELECT", "WITH", "VALUES")
STATEMENTS = frozenset(
    [
        *("ALTER", "ANALYZE", "ATTACH", "BEGIN", "CALL", "CHECKPOINT", "CLOSE", "CLUSTER", "COMMENT", "COMMIT", "COPY"),
        *("CREATE", "DEALLOCATE", "DECLARE", "DELETE", "DETACH", "DISCARD", "DO", "DROP", "END", "EXECUTE", "EXPLAIN"),
        *("FETCH", "GRANT", "IMPORT", "INSERT", "LISTEN", "LOAD", "LOCK", "MERGE", "MOVE", "NOTIFY", "PRAGMA"),
        *("PREPARE", "REASSIGN", "REFRESH", "REINDEX", "RELEASE", "REPLACE", "RESET", "REVOKE", "ROLLBACK"),
        *("SAVEPOINT", "SECURITY", "SET", "SHOW", "START", "TRUNCATE", "UNLISTEN", "UPDATE", "VACUUM"),
    ]
)
"""Words by which a statement starts that is no question."""

NO_QUESTION = "There is no question. Write a SELECT, such as: select host, test, avg_ts from latest"
ONE_AT_A_TIME = "Only one statement is answered at a time. Leave out what follows the first semicolon."

_APART = r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/|::"""
"""What in SQL holds no parameter though it may look so: texts, names, comments, casts."""

_PARAMETER = re.compile(rf"{_APART}|(?<![\w:\[]):([A-Za-z_]\w*)", re.DOTALL)


def value_of(text: str) -> Value:
    """Return what a parameter's text stands for: a number where it is one, what is in double quotes, else the text."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", text):
        return float(text)
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            return str(json.loads(text, strict=False))
        except ValueError:
            return text
    return text


def check_parameters(sql: str, parameters: Mapping[str, Value]) -> None:
    """Raise SqlError unless `parameters` are exactly those that `sql` names as `:name`."""
    named = dict.fromkeys(name for _, _, name in _parameters(sql))
    for name in named:
        if name not in parameters:
            raise SqlError(f"The question asks for a value of :{name}. Give it: -p {name}=VALUE")
    for name in parameters:
        if name not in named:
            raise SqlError(f"The question has no :{name}. " + _hint(name, named, 0.5, f"It has: {_list(named)}."))


def with_percent(sql: str) -> str:
    """Return `sql` with its `:name` as psycopg writes them, `%(name)s`, and every other `%` doubled."""
    parts, end = [], 0
    for start, after, name in _parameters(sql):
        parts += [sql[end:start].replace("%", "%%"), f"%({name})s"]
        end = after
    return "".join([*parts, sql[end:].replace("%", "%%")])


def _parameters(sql: str) -> Iterator[tuple[int, int, str]]:
    for found in _PARAMETER.finditer(sql):
        if found[2]:
            yield found.start(), found.end(), found[2]


def first_word(sql: str) -> str:
    """Return the first word of the statement, in capitals; empty where there is none."""
    bare = re.sub(r"^(\s|;|--[^\n]*(\n|$)|/\*.*?\*/)*", "", sql, flags=re.DOTALL)
    return re.split(r"[^A-Za-z_]", bare, maxsplit=1)[0].upper()


def not_a_question(sql: str, reason: str) -> str:
    """Return the refusal of what would do more than read."""
    word = first_word(sql)
    if word in WORDS:
        return f"The question does more than read: {reason}. Only SELECT is answered here, and functions that read."
    return f"Only SELECT is answered here, not {word}: questions never change the database."


def no_column(name: str, sql: str, relations: Relations) -> str:
    """Return that there is no column `name`, with the nearest one of what `sql` asks, or all of that."""
    asked = [relation for relation in relations if re.search(rf"\b{re.escape(relation)}\b", sql, re.IGNORECASE)]
    known = dict.fromkeys(column for relation in asked or VIEW_COLUMNS for column in _columns(relation, relations))
    bare = name.rpartition(".")[2]
    everything = f"{' and '.join(asked) or 'The views'} have: {', '.join(sorted(known))}."
    return f"There is no column {name}. " + _hint(bare.lower(), known, 0.6, everything)


def no_relation(name: str, relations: Relations) -> str:
    """Return that there is no table or view `name`, with the nearest one, or the views."""
    hint = _hint(name.lower(), dict.fromkeys([*VIEWS, *relations]), 0.5, f"There are {_list(VIEWS)}.")
    return f"There is no table or view {name}. {hint}"


def syntax(near: str | None, sql: str, said: str) -> str:
    """Return that `sql` is none, from the word `near` on; `said` is what the database says where it names no word."""
    word = first_word(sql)
    if word not in WORDS:
        hint = _hint(word, WORDS, 0.6, "A question starts with SELECT.")
        return f"The question starts with {word or 'no word'}, which is no SQL. {hint}"
    return f"The question is not SQL from {near!r} on." if near else f"The question is not SQL: {said.rstrip('.')}."


def too_slow(seconds: float) -> str:
    """Return that the time limit was passed."""
    return f"The answer took more than {seconds:g} s. Ask for less, or allow more with --timeout."


def too_large(n_bytes: int) -> str:
    """Return that the limit on memory was passed."""
    return f"The answer needs more than {n_bytes >> 20} MiB of memory. Ask for less of it at a time."


def _hint(name: str, known: Collection[str], cutoff: float, otherwise: str) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"Did you mean {near[0]}?" if near else otherwise


def _columns(relation: str, relations: Relations) -> Collection[str]:
    return relations.get(relation) or [column.name for column in VIEW_COLUMNS.get(relation, ())]


def _list(names: Collection[str]) -> str:
    return ", ".join(names) or "none"
