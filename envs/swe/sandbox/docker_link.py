"""One container and the stream to its supervisor: frames over the attached stdin and stdout."""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

from refork.envs.forkable import InfraFailure

FRAME = struct.Struct(">II")
STREAM = struct.Struct(">BxxxI")
_NOT_YET = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
STDERR = 2
"""Docker multiplexes an attached stream: stream number, three zero bytes, length, data."""


class Link:
    """Request and reply with one supervisor. Every failure is an InfraFailure naming the container."""

    def __init__(self, stream: Any, name: str) -> None:
        """`stream` is what the client's attach gave; it is kept, since the connection may end with it."""
        self.name = name
        self.broken: str | None = None
        self._stream = stream
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._socket.setblocking(False)
        self._raw = bytearray()
        self._frames = bytearray()
        self._complaint = bytearray()

    def ask(
        self, request: Mapping[str, Any], body: bytes | Iterable[bytes] = b"", size: int | None = None, *, wait_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Send one request (`size`: bytes of `body` when it is not bytes) and wait for its reply.

        Raises InfraFailure when the container is gone or does not answer in `wait_s`; afterwards the link is broken.
        """
        if self.broken:
            raise InfraFailure(self.broken)
        parts = [body] if isinstance(body, bytes) else body
        length = len(body) if isinstance(body, bytes) else size or 0
        end = time.monotonic() + wait_s
        header = json.dumps(request).encode()
        self._send(FRAME.pack(len(header), length) + header, end)
        for part in parts:
            self._send(part, end)
        return self._reply(end)

    def send(self, data: bytes, *, wait_s: float) -> None:
        """Write raw bytes. Raises InfraFailure as `ask` does."""
        self._send(data, time.monotonic() + wait_s)

    def close(self) -> None:
        """Close the stream; the supervisor ends when it sees that."""
        self.broken = self.broken or f"container {self.name} was closed"
        self._socket.close()

    def _fail(self, what: str) -> InfraFailure:
        complaint = self._complaint.decode(errors="replace").strip()
        self.broken = f"container {self.name} {what}" + (f": {complaint[-500:]}" if complaint else "")
        return InfraFailure(self.broken)

    def _wait(self, end: float, event: int) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        left_ms = (end - time.monotonic()) * 1000
        if left_ms <= 0 or not poll.poll(left_ms):
            raise self._fail("does not answer")

    def _send(self, data: bytes, end: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except _NOT_YET:
                self._wait(end, select.POLLOUT)
            except OSError as error:
                raise self._fail(f"died ({error.strerror})") from error

    def _reply(self, end: float) -> tuple[dict[str, Any], bytes]:
        while True:
            if len(self._frames) >= FRAME.size:
                head, size = FRAME.unpack_from(self._frames)
                total = FRAME.size + head + size
                if len(self._frames) >= total:
                    header = json.loads(self._frames[FRAME.size : FRAME.size + head])
                    body = bytes(self._frames[FRAME.size + head : total])
                    del self._frames[:total]
                    return header, body
            self._receive(end)

    def _receive(self, end: float) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except _NOT_YET:
            self._wait(end, select.POLLIN)
            return
        except OSError as error:
            raise self._fail(f"died ({error.strerror})") from error
        if not data:
            raise self._fail("died")
        self._raw += data
        self._split()

    def _split(self) -> None:
        """Move complete pieces of the multiplexed stream to where they belong."""
        position = 0
        while len(self._raw) - position >= STREAM.size:
            stream, length = STREAM.unpack_from(self._raw, position)
            if len(self._raw) - position - STREAM.size < length:
                break
            start = position + STREAM.size
            target = self._complaint if stream == STDERR else self._frames
            target += self._raw[start : start + length]
            position = start + length
        del self._raw[:position]
