"""One JSON object and some file descriptors over a unix stream socket. Standard library only."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

_MAX_DESCRIPTORS = 4


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    body = json.dumps(message, separators=(",", ":")).encode()
    header = len(body).to_bytes(4, "big")
    if descriptors:
        socket.send_fds(connection, [header], descriptors)
    else:
        connection.sendall(header)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message with its descriptors (close-on-exec); None at the end of the stream."""
    header, descriptors, _, _ = socket.recv_fds(connection, 4, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    if not header:
        return None
    header += _exactly(connection, 4 - len(header))
    return json.loads(_exactly(connection, int.from_bytes(header, "big"))), descriptors


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError("the other end closed in the middle of a message")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
