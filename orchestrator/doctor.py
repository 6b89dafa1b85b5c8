"""What is wrong with a lab, judged from gathered facts, and what to do about each fault (pure)."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.bootstrap import FIRST_PORT, HOST_LABEL, LAST_PORT
from orchestrator.finding import Finding, problems
from orchestrator.host_health import judge_host, judge_start, judge_token
from worker.checkup import Checkup

CLOCK_SECONDS = 2.0
"""Rows of several hosts are put in order by their clocks; a second or two disturbs nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a host's clock is ahead of ours, in seconds, and how far off that may be (half the question's way)."""

    offset: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host as the head lists it, with what it said of itself, or why it did not."""

    name: str
    address: str
    is_alive: bool = True
    is_head: bool = False
    death_reason: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    facts: Checkup | None = None
    silence: str | None = None
    clock: Clock | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What was gathered: this host, the head as reached from here, and its hosts.

    `unreached` says why the head could not be reached or used. `head_ray` and `head_python` are the versions that
    the cluster was started with, None where they could not be asked. `expected` are addresses that ought to be there.
    """

    here: Checkup
    address: str | None = None
    unreached: str | None = None
    head_ray: str | None = None
    head_python: str | None = None
    nodes: tuple[Node, ...] = ()
    expected: tuple[str, ...] = ()
    is_member: bool = True


def judge(lab: Lab) -> tuple[Finding, ...]:
    """Return what was found, host by host, this one first."""
    return (*_of_head(lab), *_of_here(lab), *_of_nodes(lab), *_of_absent(lab))


def mismatches(lab: Lab) -> tuple[Finding, ...]:
    """Return the differences in versions that must stop a run before its first job, each with the host to change."""
    return tuple(finding for finding in problems(judge(lab)) if finding.check in ("ray", "python"))


def _of_head(lab: Lab) -> Iterator[Finding]:
    if lab.address is None:
        yield Finding(
            host="head",
            check="reach",
            state="note",
            found="no head was named",
            advice="Give --address HOST[:PORT], or set TOKFLEET_RAY_ADDRESS, to have the whole lab looked at.",
        )
    elif lab.unreached:
        yield Finding(
            host=lab.address, check="reach", state="problem", found=lab.unreached, advice=_way_out(lab.unreached)
        )
    else:
        n_alive = sum(node.is_alive for node in lab.nodes)
        yield Finding(host=lab.address, check="reach", state="ok", found=f"answers; {n_alive} hosts are alive")
        if not lab.is_member:
            yield Finding(
                host=lab.address,
                check="hosts",
                state="note",
                found="this machine is no host of the lab, so that its hosts could not be asked",
                advice="Run `tokfleet cluster doctor` on the head.",
            )


def _way_out(reason: str) -> str:
    """Return what to do where the head could not be used for `reason`, as the gatherer words it."""
    if "refused" in reason:
        return "Start the head there (`tokfleet cluster start`), or give the address and port that it runs at."
    if "token" in reason.lower():
        return "Bring the head's token here: `ssh HEAD cat .ray/auth_token | tokfleet cluster token --stdin`."
    return (
        f"Look whether the head is up and its firewall lets this host in at TCP {FIRST_PORT}-{LAST_PORT}; "
        "`ping` and `nc -vz HOST 6379` tell which."
    )


def _of_here(lab: Lab) -> Iterator[Finding]:
    here = f"{lab.here.hostname} (here)"
    found = [*_versions(here, lab.here, lab), *judge_token(here, lab.here)]
    if lab.address is None or not lab.is_member or lab.unreached:
        yield from found
        yield from judge_host(here, lab.here)
    else:  # it is asked again as a host; only the Python that runs this may be another one
        yield from (finding for finding in found if finding.state != "ok")


def _versions(host: str, facts: Checkup, lab: Lab) -> Iterator[Finding]:
    """Compare with the head, or where that could not be asked with this host: Ray wants them equal, to the patch."""
    ray, python = lab.head_ray or lab.here.ray, lab.head_python or lab.here.python
    if facts.ray is None:
        advice = f'Install it into the Python that runs tokfleet: pip install "ray=={ray or "2.60.0"}".'
        yield Finding(host=host, check="ray", state="problem", found="Ray is not installed", advice=advice)
    else:
        yield _equal(host, "ray", facts.ray, ray, f"Install Ray {ray} on {host}, or {facts.ray} on all others.")
    wanted = f"Make the environment of {host} with Python {python} (`uv venv --python {python}` gets it without root)."
    yield _equal(host, "python", facts.python, python, wanted)
    yield _ours(host, facts.tokfleet, lab.here.tokfleet)


def _ours(host: str, found: str | None, wanted: str | None) -> Finding:
    """Compare our own version: a run brings its code along, so that it matters only to the commands that run there."""
    if found == wanted:
        return Finding(host=host, check="tokfleet", state="ok", found=found or "not installed")
    return Finding(
        host=host,
        check="tokfleet",
        state="note",
        found=f"{found or 'not installed'}, here {wanted or 'not installed'}",
        advice="Jobs bring the code of who runs them; check out the same commit there for the commands that run there.",
    )


def _equal(host: str, check: str, found: str, wanted: str | None, advice: str) -> Finding:
    if wanted is None or found == wanted:
        return Finding(host=host, check=check, state="ok", found=found)
    return Finding(host=host, check=check, state="problem", found=f"{found}, the head has {wanted}", advice=advice)


def _of_nodes(lab: Lab) -> Iterator[Finding]:
    names = Counter(node.labels.get(HOST_LABEL) for node in lab.nodes if node.is_alive)
    for node in lab.nodes:
        host = f"{node.name} ({node.address})"
        if not node.is_alive:
            yield _dead(host, node, lab)
            continue
        yield from _membership(host, node, names, len(lab.nodes))
        if node.facts is None:
            if lab.is_member:
                yield _silent(host, node)
            continue
        yield from _versions(host, node.facts, lab)
        yield from judge_token(host, node.facts)
        yield from judge_start(host, node.facts)
        yield from _clock(host, node.clock)
        yield from judge_host(host, node.facts)


def _dead(host: str, node: Node, lab: Lab) -> Finding:
    back = any(other.is_alive and other.address == node.address for other in lab.nodes)
    return Finding(
        host=host,
        check="alive",
        state="note",
        found=f"was lost: {node.death_reason or 'no reason was given'}",
        advice="It is back under a new id." if back else "Start it again there: `tokfleet cluster join HEAD`.",
    )


def _silent(host: str, node: Node) -> Finding:
    return Finding(
        host=host,
        check="alive",
        state="problem",
        found=node.silence or "it did not answer",
        advice="Look at its log in /tmp/ray/session_latest/logs, and whether a firewall between the hosts closes "
        f"TCP {FIRST_PORT}-{LAST_PORT}; the code must be installed in the Python that its Ray runs in.",
    )


def _membership(host: str, node: Node, names: Mapping[str | None, int], n_nodes: int) -> Iterator[Finding]:
    """Judge what the host told the head when it joined."""
    label = node.labels.get(HOST_LABEL)
    if node.address.startswith("127.") and n_nodes > 1:
        yield Finding(
            host=host,
            check="address",
            state="problem",
            found=f"it registered as {node.address}, where no other host can reach it",
            advice="Start it with `--ip ADDRESS`; its /etc/hosts may give its own name a loopback address.",
        )
    if label is None:
        yield Finding(
            host=host,
            check="label",
            state="problem",
            found=f"it has no label `{HOST_LABEL}`, so that no job is ever sent there",
            advice="Start it with `tokfleet cluster join` (or `start`) instead of `ray start`.",
        )
    elif names[label] > 1:
        yield Finding(
            host=host,
            check="label",
            state="problem",
            found=f"{names[label]} hosts are called {label}",
            advice="It runs twice, or its home is a copy of another's: stop one, or move its TOKFLEET_HOME away.",
        )
    elif node.facts and node.facts.host_uid not in (None, label):
        yield Finding(
            host=host,
            check="label",
            state="problem",
            found=f"it joined as {label} and is {node.facts.host_uid} now",
            advice="Its TOKFLEET_HOME changed since it joined: start it again.",
        )
    else:
        shown = "".join(
            f" {key}={value}" for key, value in sorted(node.labels.items()) if not key.startswith("ray.io/")
        )
        measures = "" if node.resources.get("bench_slot") else "; it only coordinates"
        yield Finding(host=host, check="label", state="ok", found=f"{shown.strip()}{measures}")
    if node.resources.get("bench_slot", 0) > 1:
        yield Finding(
            host=host,
            check="bench_slot",
            state="problem",
            found=f"it offers {node.resources['bench_slot']:g} places: jobs would disturb each other",
            advice="Start it with `tokfleet cluster join`, which offers one.",
        )


def _clock(host: str, clock: Clock | None) -> Iterator[Finding]:
    if clock is None:
        return
    said = f"{clock.offset:+.2f} s from here (± {clock.error:.2f} s)"
    if abs(clock.offset) > CLOCK_SECONDS + clock.error:
        advice = "Set its clock: `timedatectl set-ntp true`, or chrony. Times of its rows would be wrong."
        yield Finding(host=host, check="clock", state="problem", found=said, advice=advice)
    else:
        yield Finding(host=host, check="clock", state="ok", found=said)


def _of_absent(lab: Lab) -> Iterator[Finding]:
    """Name the hosts that ought to be there and are not; who cannot join is never seen by the head."""
    present = {node.address for node in lab.nodes if node.is_alive}
    if lab.unreached or lab.address is None:
        return
    for address in lab.expected:
        if address not in present:
            yield Finding(
                host=address,
                check="alive",
                state="problem",
                found="it has not joined",
                advice=f"Run `tokfleet cluster doctor --address {lab.address}` there: it says why.",
            )
