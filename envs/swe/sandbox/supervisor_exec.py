"""Inside the container: one command as the sandbox's user, watched to its end; afterwards nothing of it lives.

The supervisor is process 1: every orphan becomes its child, and `kill(-1)` reaches all but itself. Standard library
only and Python 3.8 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from refork.envs.swe.sandbox import linux

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


def drop_rights(uid: int, filters: list[bytes]) -> None:
    """In a forked child: become `uid` for good, without capabilities, under the given seccomp programs."""
    linux.drop_bounding_set()
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.drop_privileges()
    for program in filters:
        linux.install_filter(program)


def set_limits(limits: Mapping[str, Any]) -> None:
    """CPU seconds, file size and the like by rlimits. Memory and processes are the container's own limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))
    size = limits["file_mb"] << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))


def become_command(request: Mapping[str, Any], write_end: int, filters: list[bytes]) -> None:
    """In a forked child: take the command's place. Returns when only exec (or the warm module) is left to do."""
    if not request["warm"]:
        os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(write_end, 1)
    os.dup2(write_end, 2)
    os.closerange(3, 4096)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    os.umask(0o022)
    set_limits(request["limits"])
    drop_rights(request["uid"], filters)
    os.chdir(request["cwd"])


def exec_command(request: Mapping[str, Any]) -> None:
    """Exec, or end with 127 (not found) or 126 (not executable) and the reason on stderr, as a shell does."""
    argv = request["argv"]
    try:
        os.execvpe(argv[0], argv, request["env"])
    except OSError as error:
        os.write(2, f"{argv[0]}: {os.strerror(error.errno or 0)}\n".encode(errors="replace"))
        os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)


def kill_all() -> None:
    """Kill and reap every process of the container but this one."""
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


class Watch:
    """Follows one command to its end or its deadline, with the output it writes."""

    def __init__(self, pid: int, read_end: int, limits: Mapping[str, Any], disk_full: Callable[[], bool]) -> None:
        self.pid, self.read_end, self.limits = pid, read_end, limits
        self.output = Output(limits["output_bytes"])
        self.killed_by: str | None = None
        self.status: int | None = None
        self.cpu_s = 0.0
        self._disk_full = disk_full
        self._start = time.monotonic()
        self._oom_before = oom_kills()
        self._open = True

    def wait(self, wakeup: int) -> dict[str, Any]:
        """The reply's fields. When it returns, nothing of the command lives and its output is drained.

        `wakeup` is the descriptor that signals are written to. Raises HostGone when the host closes the stream.
        """
        end, poll = self._start + self.limits["wall_s"], self._start + POLL_S
        while self.status is None and self.killed_by is None:
            now = time.monotonic()
            if now >= poll and now < end:
                poll = now + POLL_S
                self.killed_by = "disk" if self._disk_full() else None
            elif now >= end or self.output.total > self.limits["flood_bytes"]:
                self.killed_by = "wall" if now >= end else "output"
            else:
                self._take_in(wakeup, min(end, poll) - now)
        wall = time.monotonic() - self._start
        self._finish()
        head, tail = self.output.parts()
        sizes = {"head": len(head), "total": self.output.total}
        return {"code": self._code(), "killed_by": self.killed_by, "wall_s": wall, "body": head + tail, **sizes}

    def _take_in(self, wakeup: int, timeout: float) -> None:
        sources = [0, wakeup, self.read_end] if self._open else [0, wakeup]
        ready = select.select(sources, [], [], timeout)[0]
        if self.read_end in ready:
            self._read()
        if wakeup in ready:
            os.read(wakeup, 4096)
            self._reap()
        if 0 in ready:
            raise HostGone

    def _read(self) -> None:
        data = os.read(self.read_end, 1 << 16)
        self.output.feed(data)
        self._open = bool(data)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.status, self.cpu_s = status, usage.ru_utime + usage.ru_stime

    def _finish(self) -> None:
        kill_all()
        while self._open:
            self._read()
        os.close(self.read_end)
        if oom_kills() > self._oom_before:
            self.killed_by = "memory"
        elif self.killed_by is None and self._cpu_ran_out():
            self.killed_by = "cpu"

    def _cpu_ran_out(self) -> bool:
        hard = self._signal() == signal.SIGKILL and self.cpu_s >= self.limits["cpu_s"]
        return hard or self._signal() == signal.SIGXCPU

    def _signal(self) -> int:
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else 0

    def _code(self) -> int | None:
        if self.killed_by is not None or self.status is None:
            return None
        return -self._signal() or os.WEXITSTATUS(self.status)


def oom_kills() -> int:
    """How often the kernel has killed for memory in this container so far (cgroup v2 or v1); 0 where it is not told."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        try:
            with open(path) as source:
                fields = dict(line.split() for line in source)
        except OSError:
            continue
        return int(fields.get("oom_kill", 0))
    return 0
