"""What is wrong with a lab, judged from gathered facts, and what to do about each fault (pure)."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.bootstrap import DASHBOARD_PORT, FIRST_PORT, HOST_LABEL, LAST_PORT
from orchestrator.cluster import OBJECT_STORE_BYTES
from worker.checkup import Checkup, Listener

State = Literal["ok", "note", "problem"]

SHM = "/dev/shm"  # noqa: S108 - a name in a table
CLOCK_SECONDS = 2.0
"""Rows of several hosts are put in order by their clocks; a second or two disturbs nobody."""

LOW_DISK_BYTES = 5 << 30
NO_DISK_BYTES = 500 << 20
COMMIT = re.compile(r"[\w.-]{1,64}|unknown commit")
"""What a build says of itself; why one does not run is a sentence."""

WIDER_THAN_OWNER = 0o077


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one host: what was found, and what to do where that is not right."""

    host: str
    check: str
    state: State
    found: str
    advice: str = ""


def judge(lab: Lab) -> tuple[Finding, ...]:
    """Return what was found, host by host, this one first."""
    return (*_of_head(lab), *_of_here(lab), *_of_nodes(lab), *_of_absent(lab))


def problems(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return those that must be mended before the lab can be relied on."""
    return tuple(finding for finding in findings if finding.state == "problem")


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
    found = [*_versions(here, lab.here, lab), *_token(here, lab.here)]
    if lab.address is None or not lab.is_member or lab.unreached:
        yield from found
        yield from _of_checkup(here, lab.here)
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


def _token(host: str, facts: Checkup) -> Iterator[Finding]:
    place = facts.token_path
    if place is None:
        yield Finding(host=host, check="token", state="ok", found="in the variable RAY_AUTH_TOKEN")
    elif facts.token_mode is None:
        yield Finding(
            host=host,
            check="token",
            state="problem",
            found=f"there is none in {place}",
            advice="`tokfleet cluster token` makes it on the head; on a host "
            "`ssh HEAD cat .ray/auth_token | tokfleet cluster token --stdin` brings it.",
        )
    elif facts.token_mode & WIDER_THAN_OWNER:
        yield Finding(
            host=host,
            check="token",
            state="problem",
            found=f"{place} has mode {facts.token_mode:04o}: others on that machine can read it",
            advice=f"chmod 600 {place}",
        )
    else:
        yield Finding(host=host, check="token", state="ok", found=f"{place}, mode {facts.token_mode:04o}")


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
        yield from _token(host, node.facts)
        yield from _started(host, node.facts)
        yield from _clock(host, node.clock)
        yield from _of_checkup(host, node.facts)


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


def _started(host: str, facts: Checkup) -> Iterator[Finding]:
    """Judge how Ray was started there: what it changes for its workers by default changes what is measured."""
    if facts.auth_mode != "token":
        yield Finding(
            host=host,
            check="token",
            state="problem",
            found=f"RAY_AUTH_MODE is {facts.auth_mode or 'not set'} there: whoever reaches its ports can run programs",
            advice="Stop it (`ray stop`) and start it with `tokfleet cluster join` (or `start`).",
        )
    wrong = [
        text
        for is_wrong, text in (
            (bool(facts.niceness), f"its workers have niceness {facts.niceness}"),
            (bool(facts.oom_score_adjustment), f"OOM score {facts.oom_score_adjustment}"),
            (not facts.memory_monitor_off, "Ray's memory monitor may kill a measurement"),
        )
        if is_wrong
    ]
    yield Finding(
        host=host,
        check="fidelity",
        state="problem" if wrong else "ok",
        found=", ".join(wrong) or "niceness 0, OOM score 0, no memory monitor",
        advice="Start it with `tokfleet cluster join`: these are set when Ray starts, on each host." if wrong else "",
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


def _of_checkup(host: str, facts: Checkup) -> Iterator[Finding]:
    """Judge what concerns one host alone."""
    yield from _builds(host, facts.builds or {})
    yield _disk(host, facts)
    yield from _shm(host, facts)
    yield from _models(host, facts)
    yield from _ports(host, facts)


def _builds(host: str, builds: Mapping[str, str]) -> Iterator[Finding]:
    for name, commit in builds.items():
        if COMMIT.fullmatch(commit):
            yield Finding(host=host, check="llama.cpp", state="ok", found=f"{name}: {commit}")
        else:
            advice = "Build it there: `make engine` in the checkout, or `tokfleet build add`."
            yield Finding(host=host, check="llama.cpp", state="problem", found=f"{name}: {commit}", advice=advice)


def _disk(host: str, facts: Checkup) -> Finding:
    free = facts.home_free_bytes
    if facts.home_problem or free is None:
        advice = "Set TOKFLEET_HOME to a directory that this user can write, and start the host again."
        return Finding(host=host, check="disk", state="problem", found=facts.home_problem or "not known", advice=advice)
    said = f"{_size(free)} free at {facts.home}"
    if free < NO_DISK_BYTES:
        advice = "Make room there, or set TOKFLEET_HOME to another disk: results are kept there before they are sent."
        return Finding(host=host, check="disk", state="problem", found=said, advice=advice)
    if free < LOW_DISK_BYTES:
        return Finding(
            host=host, check="disk", state="note", found=said, advice="Too little for models that are built or fetched."
        )
    return Finding(host=host, check="disk", state="ok", found=said)


def _shm(host: str, facts: Checkup) -> Iterator[Finding]:
    """Judge the place of Ray's object store; where Linux has none, Ray uses the disk."""
    if facts.system != "Linux":
        return
    total = facts.shm_bytes
    if total is None or total < OBJECT_STORE_BYTES:
        found = f"{_size(total)} in all" if total is not None else "there is none"
        yield Finding(
            host=host,
            check=SHM,
            state="problem",
            found=f"{found}; Ray's object store needs {_size(OBJECT_STORE_BYTES)} and takes the disk instead",
            advice="mount -o remount,size=1G /dev/shm; in a container start it with --shm-size=1g.",
        )
    else:
        free = facts.shm_free_bytes or 0
        yield Finding(host=host, check=SHM, state="ok", found=f"{_size(free)} of {_size(total)} free")


def _models(host: str, facts: Checkup) -> Iterator[Finding]:
    for model in facts.models:
        if model.problem:
            advice = "Copy it there, or name a model in the sweep that hosts can build (`synthetic:`) or fetch (`hf:`)."
            yield Finding(host=host, check="model", state="note", found=f"{model.spec}: {model.problem}", advice=advice)
        else:
            size = _size(model.size_bytes or 0)
            yield Finding(host=host, check="model", state="ok", found=f"{model.spec}: {size}")
    if not facts.models:
        yield Finding(host=host, check="model", state="ok", found=f"{facts.n_models_at_home} files at home")


def _ports(host: str, facts: Checkup) -> Iterator[Finding]:
    """Judge which ports others can reach. Ray narrows few of its own, so that a firewall must."""
    if facts.listeners_problem:
        yield Finding(host=host, check="ports", state="note", found=facts.listeners_problem)
        return
    wide = [one for one in facts.listeners if not _is_loopback(one.ip)]
    yield from (finding for one in wide for finding in _wide(host, one))
    n_ray = len({one.port for one in wide if FIRST_PORT <= one.port <= LAST_PORT})
    yield Finding(
        host=host,
        check="ports",
        state="note" if n_ray else "ok",
        found=f"{n_ray} of Ray's ports can be reached from elsewhere" if n_ray else "none of Ray's is reachable",
        advice=f"Let only the lab's hosts in at TCP {FIRST_PORT}-{LAST_PORT}." if n_ray else "",
    )


def _wide(host: str, one: Listener) -> Iterator[Finding]:
    """Yield what is wrong with a port that is open to the network."""
    place = f"{one.program or 'somebody'} at {one.ip}:{one.port}"
    if one.port == DASHBOARD_PORT:
        yield Finding(
            host=host,
            check="ports",
            state="problem",
            found=f"the dashboard can be reached from elsewhere ({place})",
            advice="Start the head with `tokfleet cluster start`; `ssh -L 8265:localhost:8265 HEAD` brings it to you.",
        )
    elif "rpc-server" in (one.program or ""):
        yield Finding(
            host=host,
            check="ports",
            state="problem",
            found=f"llama.cpp's RPC server, which asks nobody who he is, can be reached from elsewhere ({place})",
            advice="Start it with `-H 127.0.0.1`.",
        )
    elif _is_rays(one.program) and not FIRST_PORT <= one.port <= LAST_PORT:
        yield Finding(
            host=host,
            check="ports",
            state="note",
            found=f"a process of Ray listens beside the lab's range ({place})",
            advice="Another Ray runs there, or this one was started by hand: `tokfleet cluster join` keeps the range.",
        )


def _is_rays(program: str | None) -> bool:
    return program is not None and (program.startswith(("ray::", "gcs_server", "raylet")) or "ray::" in program)


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip.partition("%")[0]).is_loopback
    except ValueError:
        return False


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


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.0f} MiB"
