"""`tokfleet hosts`: which machines there are, what each is busy with, and why one gets no jobs; drain and resume."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.address import address_option, is_elsewhere, rides, spelt
from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import format_option, note, write, write_rows

if TYPE_CHECKING:
    from orchestrator.host_list import HostRow, Look
    from orchestrator.roll_call import RollCall

COLUMNS = ("host", "state", "doing", "since", "machine", "labels", "last_seen", "why", "host_uid")
LOOK_SECONDS = 60.0
MOST_CHARACTERS = 500


@click.group(invoke_without_command=True)
@click.option("--quick", is_flag=True, help="Ask the head alone: asking a host costs it about a second of one core.")
@format_option
@db_option
@address_option
@click.pass_context
def hosts(ctx: click.Context, quick: bool, form: str, db: str | None, address: str | None) -> int:
    """List the hosts: there or not, busy with what, what they are, and why one gets no jobs.

    With an address the cluster is asked, and each of its hosts; without one it is what the store knows, and this
    machine itself.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    if is_elsewhere(address):
        from orchestrator.cli.there import ride

        return ride(address, spelt(ctx))
    known = _known(database_url(db))
    _show(_in_the_cluster(address, known, quick) if address else _with_this_machine(known), form)
    return 0


@hosts.command()
@click.argument("name")
@click.option("--why", metavar="TEXT", help="What to tell those who wonder.")
@db_option
@rides
def drain(name: str, why: str | None, db: str | None) -> None:
    """Give the host NAME (its name, label or uid) no new jobs, until it is resumed.

    What it is measuring is finished first, which takes ten minutes at most. A run that wants the host goes on with
    the others, and what is left in the end `tokfleet resume` measures.
    """
    _set_drained(db, name, True, (why or "")[:MOST_CHARACTERS] or None)


@hosts.command()
@click.argument("name")
@db_option
@rides
def resume(name: str, db: str | None) -> None:
    """Give the host NAME (its name, label or uid) jobs again."""
    _set_drained(db, name, False, None)


def _set_drained(db: str | None, name: str, is_drained: bool, why: str | None) -> None:
    from orchestrator.host_states import find
    from orchestrator.store import Store
    from orchestrator.tables import escape
    from worker.recovery import utc_now

    with Store.open(database_url(db), create=False) as store:
        state = find(store.host_states(), name)
        called = escape(state.hostname or state.label or state.host_uid)
        if state.drained == is_drained and not why:
            write([f"{called} is {'drained already' if is_drained else 'not drained'}; nothing was changed."])
            return
        store.set_drained(state.host_uid, is_drained, why, _who(), utc_now())
    write([f"{called} gets {'no new jobs; what it is measuring it finishes' if is_drained else 'jobs again'}."])


def _who() -> str:
    """Return who gives this order: user and machine."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user} on {socket.gethostname()}"


def _known(url: str) -> "list[HostRow]":
    """Return what the store knows, nothing where there is none yet."""
    from orchestrator.database import database_at
    from orchestrator.host_list import known_rows
    from orchestrator.store import Store

    if database_at(url).is_empty():
        return []
    with Store.open(url, create=False) as store:
        return known_rows(store.hosts(), store.host_states())


def _with_this_machine(known: "list[HostRow]") -> "list[HostRow]":
    """Return the rows, that of this machine looked at just now."""
    from orchestrator.host_list import HostRow, Look, with_look
    from worker.busy import busy
    from worker.fingerprint.take import take
    from worker.home import home_or_nowhere

    home = home_or_nowhere()
    found = take(home, None)
    look = Look(fingerprint=found, busy=busy(home))
    if found.host_uid not in {row.host_uid for row in known}:
        known = [*known, HostRow(name=found.hostname, state="free", host_uid=found.host_uid)]
    return [with_look(row, look) if row.host_uid == found.host_uid else row for row in known]


def _in_the_cluster(address: str, known: "list[HostRow]", quick: bool) -> "list[HostRow]":
    """Return the rows of the cluster's members and of those hosts that only the store knows."""
    from dataclasses import replace

    from orchestrator import cluster
    from orchestrator.host_list import cluster_rows
    from orchestrator.members import behind
    from orchestrator.roll_call import RollCall
    from schema.lab import lab_path, load_lab
    from worker.home import home_or_nowhere

    lab = load_lab(lab_path(home_or_nowhere()))
    with cluster.joined(address):
        call = RollCall.now(lab, None)
        labels = call.labels()
        found = [
            replace(member, labels=labels.get(member.host or "", member.labels))
            for member in (*call.nodes, *behind(call.nodes, lab.launchers))
        ]
        return cluster_rows(known, found, {} if quick else _looks(call), call.problems)


def _looks(call: "RollCall") -> "dict[str, Look]":
    """Return by label what each host answers, all asked at once."""
    from orchestrator import dispatch
    from orchestrator.members import ways_of
    from worker.busy import look

    ways = ways_of(call.nodes, call.lab.launchers)
    answers = dispatch.ask(call.hosts, look, seconds=LOOK_SECONDS, ways=ways)
    return {label: _look(answer) for label, answer in answers.items()}


def _look(answer: Any) -> "Look":
    """Return a host's answer, checked at the border, or why there is none."""
    from orchestrator.host_list import Look
    from schema.accept import accept_fingerprint
    from schema.canonical import decode
    from schema.errors import TokfleetError
    from worker.busy import Busy

    try:
        if isinstance(answer, Exception):
            raise answer
        held = answer["busy"]
        return Look(
            fingerprint=accept_fingerprint(answer["fingerprint"]), busy=decode(Busy, _short(held)) if held else None
        )
    except TokfleetError as error:
        return Look(error=str(error))
    except (KeyError, TypeError, AttributeError):
        return Look(error="it answered what this version does not understand")


def _short(held: Mapping[str, Any]) -> dict[str, str | None]:
    """Return texts of a length that a table can show, whatever a host sent."""
    return {str(key): None if value is None else str(value)[:MOST_CHARACTERS] for key, value in held.items()}


def _show(rows: "list[HostRow]", form: str) -> None:
    from orchestrator.host_list import ago

    now = datetime.now(UTC)
    people = form == "table"
    shown = [
        (
            row.name,
            row.state,
            row.doing,
            ago(row.since, now) if people else row.since,
            row.machine,
            " ".join(f"{key}={value}" for key, value in row.labels.items()) or None if people else dict(row.labels),
            ago(row.seen_at, now) if people else row.seen_at,
            row.why,
            row.host_uid,
        )
        for row in rows
    ]
    columns = [i for i, name in enumerate(COLUMNS) if not people or name in _worth_showing(shown)]
    write_rows([COLUMNS[i] for i in columns], [tuple(row[i] for i in columns) for row in shown], form)
    if not rows:
        note("No host is known yet: hosts become known when they join a cluster, or first measure.")


def _worth_showing(rows: list[tuple[Any, ...]]) -> set[str]:
    """Return the columns that a table has: all but the uid and those without a value."""
    filled = {name for i, name in enumerate(COLUMNS) if any(row[i] is not None for row in rows)}
    return (filled | {"host", "state", "machine"}) - {"host_uid"}
