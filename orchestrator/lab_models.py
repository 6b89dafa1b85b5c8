"""A sweep's models on the hosts of a connected cluster: what `orchestrator.model_places` needs of Ray and the lab."""

from collections.abc import Callable
from functools import partial
from typing import Any

from orchestrator import dispatch
from orchestrator.distribute import Fetch
from orchestrator.gates import lab_host
from orchestrator.members import ways_of
from orchestrator.model_places import ModelPlaces
from orchestrator.place import Place
from orchestrator.roll_call import RollCall
from orchestrator.transfer import transfer
from schema.errors import ClusterError
from schema.sweep import Sweep

TELL_SHARE = 0.1


def describe(
    call: RollCall, sweep: Sweep, words: tuple[Any, ...], may_fetch: bool, may_read: bool, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return by label what each host answers to `on_host.describe`, with models found elsewhere, or fetched."""
    ways = ways_of(call.nodes, call.lab.launchers)
    folders = {
        label: lab_host(call.lab, Place(label=label, name=member.hostname)).models
        for label, member in call.hosts.items()
    }
    places = ModelPlaces(
        ask=partial(dispatch.ask, ways=ways),
        folders=folders,
        fetch=partial(fetched, tell=tell) if may_fetch else None,
        may_read=may_read,
        apart=frozenset(label for label, way in ways.items() if way.launcher is not None),
        tell=tell,
    )
    return places(sweep, call.describe(words))


def fetched(fetch: Fetch, tell: Callable[[str], None]) -> str:
    """Have the host fetch the model and return the file's path there; `tell` hears how far that is, now and then."""
    told, path = 0.0, None
    for event in transfer(fetch):
        path, share = event.get("path"), float(event["fraction"])
        if TELL_SHARE <= share - told < 1.0:
            told = share
            tell(f"{fetch.to}: {share:.0%}")
    if not isinstance(path, str):
        raise ClusterError(f"The host {fetch.to} did not say where it keeps what it fetched.")
    return path
