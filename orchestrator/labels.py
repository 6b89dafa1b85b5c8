"""What people say about runs, hosts and results: tags, notes, and results that are not to be compared.

Everything that was said stays in the table `label`, with who said it and when; what holds now is beside the thing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from sqlalchemy import Connection, Table, func, insert, or_, select, update

from orchestrator.store import Store
from schema.errors import StoreError, UsageError
from schema.import_tables import import_row
from schema.tables import attempt, host, job, label, run

About = Literal["run", "host", "result"]
ABOUT: tuple[About, ...] = get_args(About)

MOST_TAGS = 50
MOST_NOTES = 500
KEY_CHARACTERS = 100
VALUE_CHARACTERS = 1000
NOTE_CHARACTERS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """A run, host or result as it is stored: where, its number there, its uid, and how people call it."""

    about: About
    table: Table
    id: int
    uid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What holds of one thing: its tags, and its notes as objects with `at`, `by` and `text`."""

    thing: Thing
    tags: dict[str, str]
    notes: list[dict[str, str]]


def labels_of(store: Store, about: About, word: str) -> Labels:
    """Return what is said of the run, host or result that `word` names."""
    with store.snapshot() as connection:
        return _labels(connection, find(connection, about, word))


def tag(store: Store, about: About, word: str, pairs: Mapping[str, str], removed: Sequence[str], author: str) -> Labels:
    """Set the tags in `pairs`, take those in `removed` away, and return what holds then.

    Raises UsageError for a key or value that is empty or too long, and for a tag to remove that is not there.
    """
    for key, value in pairs.items():
        _check(key, "key", KEY_CHARACTERS)
        _check(value, f"value of {key}", VALUE_CHARACTERS)

    def work(connection: Connection) -> Labels:
        thing = find(connection, about, word)
        before = _labels(connection, thing)
        missing = [key for key in removed if key not in before.tags]
        if missing:
            raise UsageError(f"The {about} {thing.name} has no tag {missing[0]!r:.100}.")
        tags = {key: value for key, value in (before.tags | dict(pairs)).items() if key not in removed}
        if len(tags) > MOST_TAGS:
            raise UsageError(f"The {about} {thing.name} would have {len(tags)} tags, more than {MOST_TAGS}.")
        changed = [key for key, value in pairs.items() if before.tags.get(key) != value and key not in removed]
        _say(connection, thing, author, *(("tag", key, pairs[key]) for key in changed))
        _say(connection, thing, author, *(("untag", key, None) for key in removed))
        _keep(connection, thing, {"tags": tags})
        return Labels(thing=thing, tags=tags, notes=before.notes)

    return store.change(work)


def note(store: Store, about: About, word: str, text: str, author: str) -> Labels:
    """Add a note and return what holds then; the same note of the same person twice is one."""
    _check(text, "note", NOTE_CHARACTERS)

    def work(connection: Connection) -> Labels:
        thing = find(connection, about, word)
        before = _labels(connection, thing)
        if any((said["text"], said["by"]) == (text, author) for said in before.notes):
            return before
        if len(before.notes) >= MOST_NOTES:
            raise UsageError(f"The {about} {thing.name} has {MOST_NOTES} notes already, which is the most.")
        at = _say(connection, thing, author, ("note", None, text))
        notes = [*before.notes, {"at": at.isoformat(timespec="seconds")[:19] + "Z", "by": author, "text": text}]
        _keep(connection, thing, {"notes": notes})
        return Labels(thing=thing, tags=before.tags, notes=notes)

    return store.change(work)


def mark(store: Store, words: Sequence[str], bad: str | None, author: str) -> list[Thing]:
    """Mark the results as bad for the reason `bad`, or with None as good again; return which they are. All or none."""
    if bad is not None:
        _check(bad, "reason", NOTE_CHARACTERS)

    def work(connection: Connection) -> list[Thing]:
        things = [find(connection, "result", word) for word in words]
        for thing in things:
            at = _say(connection, thing, author, ("good" if bad is None else "bad", None, bad))
            _keep(
                connection,
                thing,
                {"marked_bad": bad is not None, "mark_reason": bad, "marked_by": author, "marked_at": at},
            )
        return things

    return store.change(work)


def find(connection: Connection, about: About, word: str) -> Thing:
    """Return the run, host or result that `word` names: a uid or its start, a host's name, a job's uid.

    A job's uid means the attempt that speaks for it, or else its last one. Raises StoreError where nothing, or more
    than one thing, is called so.
    """
    if not word:
        raise UsageError(f"Which {about}? Give its id.")
    found = {"run": _runs, "host": _hosts, "result": _results}[about](connection, word)
    if not found:
        raise StoreError(f"There is no {about} {word!r:.80} in this database.")
    if len(found) > 1:
        names = ", ".join(thing.uid for thing in found[:5])
        raise StoreError(f"{word!r:.80} may be any of several {about}s: {names}. Give more of one.")
    return found[0]


def _runs(connection: Connection, word: str) -> list[Thing]:
    query = select(run.c.id, run.c.run_uid, run.c.name).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(10)
    if word != "latest":
        query = query.where(_starts(run.c.run_uid, word))
    found = [
        Thing(about="run", table=run, id=row.id, uid=row.run_uid, name=row.name) for row in connection.execute(query)
    ]
    return found[:1] if word == "latest" else _exact(found, word)


def _hosts(connection: Connection, word: str) -> list[Thing]:
    query = select(host.c.id, host.c.host_uid, host.c.hostname).limit(10)
    query = query.where(or_(host.c.hostname == word, _starts(host.c.host_uid, word)))
    found = [
        Thing(about="host", table=host, id=row.id, uid=row.host_uid, name=row.hostname or row.host_uid)
        for row in connection.execute(query)
    ]
    return _exact(found, word)


def _results(connection: Connection, word: str) -> list[Thing]:
    query = (
        select(attempt.c.id, attempt.c.attempt_uid, attempt.c.final, attempt.c.number, job.c.job_uid, job.c.test)
        .join(job, job.c.id == attempt.c.job_id)
        .where(or_(_starts(attempt.c.attempt_uid, word), _starts(job.c.job_uid, word)))
        .order_by(attempt.c.final.desc(), attempt.c.number.desc())
        .limit(1000)
    )
    rows = connection.execute(query).all()
    by_attempt = [row for row in rows if row.attempt_uid.startswith(word)]
    by_job = {row.job_uid: row for row in reversed(rows) if row.job_uid.startswith(word)}
    exact = [row for row in by_attempt if row.attempt_uid == word] or [
        row for uid, row in by_job.items() if uid == word
    ]
    meant = {row.id: row for row in exact or [*by_attempt, *by_job.values()]}
    own = [
        Thing(about="result", table=attempt, id=row.id, uid=row.attempt_uid, name=row.test) for row in meant.values()
    ]
    return own if exact else [*own, *_imported(connection, word)]


def _imported(connection: Connection, word: str) -> list[Thing]:
    query = select(import_row.c.id, import_row.c.import_key, import_row.c.test).where(
        _starts(import_row.c.import_key, word)
    )
    found = [
        Thing(about="result", table=import_row, id=row.id, uid=row.import_key, name=row.test)
        for row in connection.execute(query.limit(10))
    ]
    return _exact(found, word)


def _exact(found: list[Thing], word: str) -> list[Thing]:
    return [thing for thing in found if thing.uid == word] or found


def _starts(column: Any, word: str) -> Any:
    return func.substr(column, 1, len(word)) == word


def _labels(connection: Connection, thing: Thing) -> Labels:
    own = thing.table.c
    row = connection.execute(select(own.tags, own.notes).where(own.id == thing.id)).one()
    return Labels(thing=thing, tags=dict(row.tags or {}), notes=list(row.notes or []))


def _say(connection: Connection, thing: Thing, author: str, *said: tuple[str, str | None, str | None]) -> datetime:
    """Keep what was said, and return when that was."""
    _check(author, "name of who says it", KEY_CHARACTERS)
    now = datetime.now(UTC)
    own = {"about": thing.about, "uid": thing.uid, "author": author, "labelled_at": now}
    rows = [own | {"kind": kind, "name": name, "said": text} for kind, name, text in said]
    if rows:
        connection.execute(insert(label), rows)
    return now


def _keep(connection: Connection, thing: Thing, values: Mapping[str, Any]) -> None:
    connection.execute(update(thing.table).where(thing.table.c.id == thing.id).values(values))


def _check(text: str, what: str, most: int) -> None:
    if not text.strip():
        raise UsageError(f"The {what} is empty.")
    if len(text) > most:
        raise UsageError(f"The {what} has {len(text)} characters, more than {most}.")
    if any(ord(letter) == 0 or 0xD800 <= ord(letter) <= 0xDFFF for letter in text):
        raise UsageError(f"The {what} has characters that no database keeps.")
