"""Follows a running command to its end: keeps the head and the tail of its output, enforces its deadline."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refork.envs.swe.sandbox.base import Kill, Limits
from refork.envs.swe.sandbox.spawner import Running

FLOOD_BYTES = 256 << 20
"""A command that writes more than this is killed: its output is of no use, and reading it costs CPU time."""
_PIPE_BYTES = 1 << 20
_FIRST_POLL_S, _LAST_POLL_S = 0.1, 0.5


class HeadTail:
    """The head and the tail of a stream in bounded memory, with an exact count of all of it."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 4 * self._half + _PIPE_BYTES:
            del self._tail[: -self._half]

    def text(self) -> tuple[str, int]:
        """The output and the number of bytes left out between its halves; a cut never splits a character."""
        tail = bytes(self._tail[-self._half :])
        if self.total == len(self._head) + len(tail):
            return (bytes(self._head) + tail).decode(errors="replace"), 0
        return join_halves(bytes(self._head), tail, self.total)


def join_halves(head: bytes, tail: bytes, total: int) -> tuple[str, int]:
    """Text of both ends of a stream of `total` bytes with a line between them that says how much is missing."""
    head = head[: len(head) - _incomplete(head)]
    lead = 0
    while lead < min(3, len(tail)) and tail[lead] & 0xC0 == 0x80:
        lead += 1
    tail = tail[lead:]
    omitted = total - len(head) - len(tail)
    return f"{head.decode(errors='replace')}\n[{omitted} bytes left out]\n{tail.decode(errors='replace')}", omitted


def _incomplete(data: bytes) -> int:
    """How many bytes at the end of `data` begin a character that is not whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])


@dataclass(frozen=True)
class Captured:
    """How a command ended. `report` is what process 1 of its namespace said, None when it was killed."""

    report: dict[str, Any] | None
    output: HeadTail
    wall_s: float
    killed_by: Kill | None


def follow(running: Running, limits: Limits, started: float, over_disk: Callable[[], bool]) -> Captured:
    """Read until the namespace is gone; kill it at its deadline, in a flood, or when `over_disk` says so."""
    fcntl.fcntl(running.output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    output = HeadTail(limits.output_bytes)
    killed: Kill | None = None
    poll = select.poll()
    poll.register(running.output, select.POLLIN)
    poll.register(running.pidfd, select.POLLIN)
    deadline, check, pause = started + limits.wall_s, started + _FIRST_POLL_S, _FIRST_POLL_S
    open_ends = {running.output, running.pidfd}
    while open_ends:
        now = time.monotonic()
        for descriptor, _ in poll.poll(max(0.0, min(deadline, check) - now) * 1000 if killed is None else None):
            if descriptor == running.pidfd or not _read(running.output, output):
                poll.unregister(descriptor)
                open_ends.discard(descriptor)
        now = time.monotonic()
        if killed is None and open_ends:
            killed = _reason(now, deadline, output, check, over_disk)
            if killed is not None:
                running.kill()
            elif now >= check:
                pause = min(pause * 2, _LAST_POLL_S)
                check = time.monotonic() + pause
    return Captured(_report(running.status), output, time.monotonic() - started, killed)


def _reason(now: float, deadline: float, output: HeadTail, check: float, over_disk: Callable[[], bool]) -> Kill | None:
    if now >= deadline:
        return "wall"
    if output.total > FLOOD_BYTES:
        return "output"
    return "disk" if now >= check and over_disk() else None


def _read(descriptor: int, output: HeadTail) -> bool:
    data = os.read(descriptor, _PIPE_BYTES)
    output.feed(data)
    return bool(data)


def _report(descriptor: int) -> dict[str, Any] | None:
    data = os.read(descriptor, 1 << 16)
    return json.loads(data) if data else None
