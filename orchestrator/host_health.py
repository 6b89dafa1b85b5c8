"""What is wrong with one host, judged from what it says of itself alone, and what to do (pure)."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from orchestrator.bootstrap import DASHBOARD_PORT, FIRST_PORT, LAST_PORT
from orchestrator.cluster import OBJECT_STORE_BYTES
from orchestrator.finding import Finding
from worker.checkup import Checkup, Listener

SHM = "/dev/shm"  # noqa: S108 - a name in a table
LOW_DISK_BYTES = 5 << 30
NO_DISK_BYTES = 500 << 20
COMMIT = re.compile(r"[\w.-]{1,64}|unknown commit")
"""What a build says of itself; why one does not run is a sentence."""

WIDER_THAN_OWNER = 0o077


def judge_host(host: str, facts: Checkup) -> Iterator[Finding]:
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


def judge_token(host: str, facts: Checkup) -> Iterator[Finding]:
    """Judge whether the host knows the lab's token, and alone."""
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


def judge_start(host: str, facts: Checkup) -> Iterator[Finding]:
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


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 1 << 30 else f"{n_bytes / 2**20:.0f} MiB"
