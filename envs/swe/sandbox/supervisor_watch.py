"""Inside the container: follows a command to its end or to a limit, and keeps what it writes.

Standard library only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

POLL_S = 0.1


class HostGone(Exception):
    """The stream to the host has ended: the owner of this container is dead."""


class Output:
    """Keeps the head and the tail of a stream in bounded memory, and counts all of it."""

    def __init__(self, limit: int) -> None:
        self.half = max(limit // 2, 1)
        self.head, self.tail, self.total = bytearray(), bytearray(), 0

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room > 0 else data
        if len(self.tail) > 2 * self.half + (1 << 16):
            del self.tail[: -self.half]

    def parts(self) -> tuple[bytes, bytes]:
        """Head and tail; together shorter than `total` when something between them was left out."""
        return bytes(self.head), bytes(self.tail[-self.half :])


class Command:
    """A command that is a child of this process. `sources` are descriptors to wait on before `look`."""

    def __init__(self, pid: int, wakeup: int) -> None:
        self.pid, self.wakeup = pid, wakeup
        self.sources = [wakeup]
        self.status: int | None = None
        self.cpu_s = 0.0

    def look(self, ready: list[int]) -> None:
        """Reap whatever has ended; the command's own end is noted in `status` and `cpu_s`."""
        if self.wakeup in ready:
            os.read(self.wakeup, 4096)
            while self._reap_one():
                pass

    def _reap_one(self) -> bool:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == self.pid:
            self.status, self.cpu_s = status, usage.ru_utime + usage.ru_stime
        return pid != 0


class Watch:
    """Follows one command to its end or its deadline, with the output it writes."""

    def __init__(self, command: Command, read_end: int, limits: Mapping[str, Any], over_disk: Callable[[], bool]):
        self.command, self.read_end, self.limits = command, read_end, limits
        self.output = Output(limits["output_bytes"])
        self.killed_by: str | None = None
        self._over_disk = over_disk
        self._start = time.monotonic()
        self._oom_before = oom_kills()
        self._open = True

    def wait(self) -> None:
        """Until the command has ended or a limit says that it must. Raises HostGone when the host is."""
        end, poll = self._start + self.limits["wall_s"], self._start + POLL_S
        while self.command.status is None and self.killed_by is None:
            now = time.monotonic()
            if now >= poll and now < end:
                poll = now + POLL_S
                self.killed_by = "disk" if self._over_disk() else None
            elif now >= end or self.output.total > self.limits["flood_bytes"]:
                self.killed_by = "wall" if now >= end else "output"
            else:
                self._take_in(min(end, poll) - now)

    def finish(self) -> dict[str, Any]:
        """The reply's fields. Nothing of the command may live any more."""
        wall = time.monotonic() - self._start
        while self._open:
            self._read()
        os.close(self.read_end)
        self.killed_by = self.killed_by or self._limit_that_killed()
        head, tail = self.output.parts()
        sizes = {"head": len(head), "total": self.output.total}
        return {"code": self._code(), "killed_by": self.killed_by, "wall_s": wall, "body": head + tail, **sizes}

    def _take_in(self, timeout: float) -> None:
        sources = [0, *self.command.sources, *([self.read_end] if self._open else [])]
        ready = select.select(sources, [], [], timeout)[0]
        if self.read_end in ready:
            self._read()
        if 0 in ready:
            raise HostGone
        self.command.look(ready)

    def _read(self) -> None:
        data = os.read(self.read_end, 1 << 16)
        self.output.feed(data)
        self._open = bool(data)

    def _limit_that_killed(self) -> str | None:
        killed = self._signal() == signal.SIGKILL
        if killed and oom_kills() > self._oom_before:
            return "memory"
        if self._signal() == signal.SIGXCPU or (killed and self.command.cpu_s >= self.limits["cpu_s"]):
            return "cpu"
        return None

    def _signal(self) -> int:
        status = self.command.status
        return os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0

    def _code(self) -> int | None:
        if self.killed_by is not None or self.command.status is None:
            return None
        return -self._signal() or os.WEXITSTATUS(self.command.status)


_OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_OOM_FILE = next(filter(os.path.exists, _OOM_FILES), "/dev/null")


def oom_kills() -> int:
    """How often the kernel has killed for memory in this container so far (cgroup v2 or v1)."""
    source = os.open(_OOM_FILE, os.O_RDONLY)
    fields = os.read(source, 4096).split()
    os.close(source)
    return int(fields[fields.index(b"oom_kill") + 1]) if b"oom_kill" in fields else 0
