"""Inside the container: a process becomes a command of the sandbox's user; afterwards nothing of it lives.

The supervisor is process 1: every orphan becomes its child, and `kill(-1)` reaches all but itself. Standard library
only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import time
from collections.abc import Collection, Mapping
from typing import Any

from refork.envs.swe.sandbox import linux


def prepare() -> None:
    """Once, in the supervisor: what its children would else have to do each."""
    linux.drop_bounding_set()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def drop_rights(uid: int, filters: list[bytes]) -> None:
    """In a forked child: become `uid` for good, without capabilities, under the given seccomp programs."""
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
    score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(score, b"1000")
    os.close(score)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(write_end, 1)
    os.dup2(write_end, 2)
    os.closerange(3, 4096)
    os.umask(0o022)
    set_limits(request["limits"])
    drop_rights(request["uid"], filters)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        cannot_start(request["cwd"], error)


def exec_command(request: Mapping[str, Any]) -> None:
    """Exec; a command that cannot be started ends with the reason on stderr."""
    argv = request["argv"]
    try:
        os.execvpe(argv[0], argv, request["env"])
    except OSError as error:
        cannot_start(argv[0], error)


def cannot_start(name: str, error: OSError) -> None:
    """End as a shell does: 127 when there is nothing of that name, 126 when it cannot be used."""
    os.write(2, f"{name}: {os.strerror(error.errno or 0)}\n".encode(errors="surrogateescape"))
    os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)


def kill_all(uid: int, spared: Collection[int]) -> None:
    """Kill and reap every process of the container but this one and the `spared`.

    The kernel forks nothing between the first and the last that it signals, and no later process is missed: one that
    had not yet become `uid` is met in the next round.
    """
    while True:
        os.setresuid(uid, uid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        os.setresuid(0, 0, 0)
        others = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        left = [pid for pid in others if pid != os.getpid() and pid not in spared and not _reaped(pid)]
        if not left:
            return
        time.sleep(0.0005)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
