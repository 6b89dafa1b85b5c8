"""A knock at a TCP port: what is behind it, and whether it answers who has no token, a wrong one, or the right one.

Speaks HTTP/1.1 and just enough of gRPC (HTTP/2 with literal headers, RFC 9113 and 7541) to make a call with an
empty message, so that nothing has to be installed where it runs: `python knock.py HOST PORT TOKEN METHOD…`
prints one line of JSON.
"""

import json
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

SECONDS = 5.0
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
STATUS = {
    "0": "OK",
    "2": "UNKNOWN",
    "3": "INVALID_ARGUMENT",
    "5": "NOT_FOUND",
    "7": "PERMISSION_DENIED",
    "12": "UNIMPLEMENTED",
    "13": "INTERNAL",
    "14": "UNAVAILABLE",
    "16": "UNAUTHENTICATED",
}


class Frame(NamedTuple):
    """One frame of HTTP/2."""

    kind: int
    flags: int
    stream: int
    body: bytes


def http(host: str, port: int, verb: str, path: str, token: str | None) -> str:
    """Return the status of a request, such as `401`; `no HTTP` where that is not spoken, `silent` where none comes."""
    authorization = f"Authorization: Bearer {token}\r\n" if token else ""
    body = "" if verb == "GET" else "{}"
    about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    request = f"{verb} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{authorization}{about}Connection: close\r\n\r\n{body}"
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(request.encode())
            answer = connection.recv(4096)
    except OSError as error:
        return f"closed ({error.strerror or type(error).__name__})" if not isinstance(error, TimeoutError) else "silent"
    if not answer.startswith(b"HTTP/1"):
        return "no HTTP"
    return answer.split(b" ", 2)[1].decode("ascii", "replace")[:3]


def grpc(host: str, port: int, method: str, token: str | None) -> str:
    """Return the status of calling `method` (/package.Service/Method) with an empty message, in words."""
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", f"{host}:{port}"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *([("authorization", f"Bearer {token}")] if token else []),
    ]
    block = _block(headers)
    try:
        with socket.create_connection((host, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            connection.sendall(HTTP2 + _frame(SETTINGS, 0, 0, b"") + _frame(HEADERS, END_HEADERS, 1, block))
            connection.sendall(_frame(DATA, END_STREAM, 1, b"\0\0\0\0\0"))
            return _status(connection)
    except TimeoutError:
        return "silent"
    except OSError as error:
        return f"closed ({error.strerror or type(error).__name__})"


def _block(headers: list[tuple[str, str]]) -> bytes:
    """Return the headers as literals that nobody keeps (RFC 7541, 6.2.2)."""
    return b"".join(b"\0" + _literal(name) + _literal(value) for name, value in headers)


def _literal(text: str) -> bytes:
    raw = text.encode()
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    rest, length = len(raw) - 127, b"\x7f"
    while rest >= 128:
        length += bytes([rest % 128 + 128])
        rest //= 128
    return length + bytes([rest]) + raw


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def _status(connection: socket.socket) -> str:
    for frame in _frames(connection):
        if frame.kind == SETTINGS and not frame.flags & ACK:
            connection.sendall(_frame(SETTINGS, ACK, 0, b""))
        elif frame.kind == PING and not frame.flags & ACK:
            connection.sendall(_frame(PING, ACK, 0, frame.body))
        elif frame.kind == HEADERS and (found := _grpc_status(frame.body)):
            return STATUS.get(found, f"gRPC status {found}")
        elif frame.kind == GOAWAY:
            return "went away"
    return "no gRPC"


def _frames(connection: socket.socket) -> Iterator[Frame]:
    while head := _exactly(connection, 9):
        length = int.from_bytes(head[:3], "big")
        if length > 1 << 20:
            return
        body = _exactly(connection, length)
        if body is None:
            return
        yield Frame(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, body)


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _grpc_status(block: bytes) -> str | None:
    """Return the value that follows the name grpc-status in a block of headers; gRPC writes both as they are."""
    at = block.find(b"grpc-status")
    if at < 0:
        return None
    length = block[at + 11] & 0x7F
    return block[at + 12 : at + 12 + length].decode("ascii", "replace")


def main(host: str, port: str, right: str, *calls: str) -> None:
    """Print what each call answers to no token, a wrong one and the right one.

    A call is `GET /path`, `POST /path`, or a method of gRPC. With `!` at its end it is not tried with the right
    token, since an empty message would do harm.
    """
    found: dict[str, dict[str, str]] = {}
    for call in calls:
        name = call.rstrip("!")
        verb, _, path = name.rpartition(" ")
        for kind, token in (("none", None), ("wrong", "0" * 64), ("right", right)):
            if kind == "right" and call.endswith("!"):
                answer = "not tried"
            elif verb:
                answer = http(host, int(port), verb, path, token)
            else:
                answer = grpc(host, int(port), name, token)
            found.setdefault(name, {})[kind] = answer
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
