"""Where the Jobs API of a head is, whether anything answers there, and what its refusals mean; without Ray."""

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from orchestrator.cluster import NO_TOKEN, has_token, is_loopback
from schema.errors import ClusterError

REACH_SECONDS = 5.0
TUNNEL = "from another machine, open a tunnel first: ssh -N -L 8265:127.0.0.1:8265 HEAD"


def reach(url: str) -> None:
    """Raise ClusterError where nothing listens there: Ray's client would wait for minutes."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host:
        raise ClusterError(f"{url!r} is no address of a head. Write http://HOST:8265, or HOST:PORT as Ray does.")
    try:
        socket.create_connection((host, port), timeout=REACH_SECONDS).close()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(
            f"No Jobs API answers at {url}: {reason}. "
            f"Start the head with its dashboard (`tokfleet cluster start`); {TUNNEL}"
        ) from error
    if not has_token() and not is_loopback(host):
        raise ClusterError(f"Only with a token is work sent to {url}, and none is known here. {NO_TOKEN}")


def is_here(url: str) -> bool:
    """Return whether the address is one of this machine's own."""
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, 0, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return False
    return any(_is_own(family, place) for family, _, _, _, place in found)


def avoid_proxies(url: str) -> None:
    """Go to the lab's own machine directly, whatever proxy this user has for the world."""
    host = urlsplit(url).hostname or ""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))


@contextlib.contextmanager
def plain_words(address: str) -> Iterator[None]:
    """Turn what Ray's client raises within the block into ClusterError, with what to do."""
    try:
        yield
    except ClusterError:
        raise
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":
            wrong = "does not accept our token" if has_token() else "wants a token, and none is known here"
            raise ClusterError(f"The head at {address} {wrong}. {NO_TOKEN}") from error
        if isinstance(error, RuntimeError) and "ray[default]" in str(error):
            raise no_client() from error
        raise ClusterError(_meaning(address, error)) from error


def no_client() -> ClusterError:
    """Return that Ray is installed here without what its Jobs API needs, and what to install."""
    return ClusterError(
        "The client of Ray's Jobs API is not installed here: pip install 'tokfleet[head]', or 'ray[default]' in the "
        "version of the head."
    )


def _meaning(address: str, error: Exception) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    if "does not exist" in text:
        return f"The head at {address} knows no such job: {text}"
    if isinstance(error, ConnectionError) or "onnection" in type(error).__name__ or "onnection" in text:
        return f"The connection to the head at {address} failed: {text} Try again; nothing there has ended."
    return f"What answers at {address} is no Jobs API of Ray as this version knows it: {text}"


def _is_own(family: int, place: Any) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as one, contextlib.suppress(OSError):
        one.bind(place)
        return True
    return False
