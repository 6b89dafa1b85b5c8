"""`tokfleet tag`, `note` and `results mark`: what people say about runs, hosts and results."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import write
from orchestrator.tables import escape, render
from schema.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.labels import About, Labels

F = TypeVar("F", bound=Callable[..., Any])
KINDS = ("run", "host", "result")
about_argument = click.argument("about", metavar="run|host|result", type=click.Choice(KINDS))


def by_option(command: F) -> F:
    """Give `command` the option `--by`, passed as `author`."""
    return click.option("--by", "author", metavar="NAME", help="Who says so.  [default: you, at this machine]")(command)


@click.command()
@about_argument
@click.argument("name", metavar="ID")
@click.argument("tags", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--remove", multiple=True, metavar="KEY", help="Take this tag away.")
@by_option
@db_option
def tag(
    about: "About", name: str, tags: tuple[str, ...], remove: tuple[str, ...], author: str | None, db: str | None
) -> None:
    """Tag a run, host or result with KEY=VALUE, or show its tags.

    ID is the uid, or the start of it; `latest` for a run, the name for a host, and for a result also what
    `tokfleet results` lists as id.
    """
    from orchestrator import labels
    from orchestrator.store import Store

    pairs = dict(_pair(text) for text in tags)
    with Store.open(database_url(db), create=False) as store:
        if pairs or remove:
            found = labels.tag(store, about, name, pairs, remove, _who(author))
        else:
            found = labels.labels_of(store, about, name)
    _show_tags(found)


@click.command()
@about_argument
@click.argument("name", metavar="ID")
@click.argument("text", required=False)
@by_option
@db_option
def note(about: "About", name: str, text: str | None, author: str | None, db: str | None) -> None:
    """Add the note TEXT to a run, host or result, or show its notes.

    ID is the uid, or the start of it; `latest` for a run, the name for a host, and for a result also what
    `tokfleet results` lists as id.
    """
    from orchestrator import labels
    from orchestrator.store import Store

    with Store.open(database_url(db), create=False) as store:
        if text is not None:
            found = labels.note(store, about, name, text, _who(author))
        else:
            found = labels.labels_of(store, about, name)
    _show_notes(found)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--bad", metavar="REASON", help="Not to be compared, for this reason.")
@click.option("--good", is_flag=True, help="To be compared again.")
@by_option
@db_option
def mark(ids: tuple[str, ...], bad: str | None, good: bool, author: str | None, db: str | None) -> None:
    """Take results out of comparisons, or put them back; nothing is deleted.

    ID is what `tokfleet results` lists as id, or the uid of an attempt. The view `latest`, and exports in
    llama-bench's forms, leave out what is marked bad; `results` shows it with the reason.
    """
    from orchestrator import labels
    from orchestrator.store import Store

    if (bad is None) == (not good):
        raise UsageError('Say what it is: --bad "REASON", or --good.')
    with Store.open(database_url(db), create=False) as store:
        things = labels.mark(store, ids, bad, _who(author))
    for thing in things:
        write([escape(f"{thing.name} ({thing.uid}) is marked {'good' if bad is None else f'bad: {bad}'}.")])


class WithMark(click.Command):
    """A command that has the subcommand `mark` besides its own arguments."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of `mark` where that is the first word, else this command's own."""
        if args[:1] == ["mark"]:
            return mark.make_context(f"{info_name} mark", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def me() -> str:
    """Return who types here: the user's name and this machine's."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def _who(author: str | None) -> str:
    return me() if author is None else author


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"{text!r:.80} is no tag: write KEY=VALUE, such as cooling=fan.")
    return key.strip(), value


def _show_tags(found: "Labels") -> None:
    rows = sorted(found.tags.items())
    write(render(("tag", "value"), rows) if rows else [escape(f"The {_thing(found)} has no tags.")])


def _show_notes(found: "Labels") -> None:
    rows = [tuple(said.get(name) for name in ("at", "by", "text")) for said in found.notes]
    write(render(("when", "by", "note"), rows) if rows else [escape(f"The {_thing(found)} has no notes.")])


def _thing(found: "Labels") -> str:
    return f"{found.thing.about} {found.thing.name}"
