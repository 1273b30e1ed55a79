"""What a freshly cloned child does before the command runs: mounts, devices, limits, and giving up every right.

It is process 1 of its namespaces and stays: it reaps orphans, reports how the command ended and exits, and with it
goes everything the command left running. Standard library only; loaded inside the spawner.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from refork.envs.swe.sandbox import linux, seccomp

SANDBOX_UID = 1000
STATUS = 3
"""Where the pipe for the report lies."""

_MASKED = ("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list")
_SIOCSIFFLAGS, _LOOPBACK_UP = 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x8 | 0x40)
_QUIET = linux.MS_NOSUID | linux.MS_NODEV


@dataclass(frozen=True)
class Facts:
    """What the spawner finds out once for all its children."""

    hidden: tuple[str, ...]
    """Parts of /proc that exist and tell of the host."""
    program: bytes
    """The seccomp filter."""
    uid: int
    gid: int
    """Ids outside; a child in its new user namespace no longer sees them."""


def prepare() -> Facts:
    """To be called by the spawner before its first child."""
    hidden = tuple(name for name in _MASKED if os.path.exists(f"/proc/{name}"))
    return Facts(hidden, seccomp.filter_program(linux.machine()), os.geteuid(), os.getegid())


def prepare_namespaces(facts: Facts) -> None:
    """What needs no knowledge of the command: identity, host name, loopback."""
    linux.die_with_parent()
    linux.map_user(SANDBOX_UID, facts.uid, SANDBOX_UID, facts.gid)
    _prefer_for_oom()
    socket.sethostname("sandbox")
    _raise_loopback()


def enter(request: Mapping[str, Any], facts: Facts) -> None:
    """Turn this process into process 1 of a sandbox; from here on it has no rights. Raises OSError."""
    _mount(request, facts.hidden)
    linux.set_dumpable(False)
    _limit(request["limits"])
    linux.drop_privileges()
    linux.install_filter(facts.program)


def _prefer_for_oom() -> None:
    """When memory runs out, a command goes first, never the spawner."""
    descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(descriptor, b"1000")
    os.close(descriptor)


def _mount(request: Mapping[str, Any], hidden: tuple[str, ...]) -> None:
    os.chdir("/store")
    places = f"lowerdir={request['lower']},upperdir={request['upper']},workdir={request['work']}"
    linux.mount("overlay", "/ov", "overlay", _QUIET, f"userxattr,volatile,{places}")
    linux.bind("/sys", "/sys")
    linux.bind("/ov/work", "/sys/testbed")
    linux.bind("/ov/tmp", "/sys/tmp")
    linux.mount("tmpfs", "/sys/dev/shm", "tmpfs", _QUIET | linux.MS_NOEXEC, "size=64m,mode=1777")
    linux.mount("proc", "/sys/proc", "proc", _QUIET | linux.MS_NOEXEC)
    for name in hidden:
        path = f"/sys/proc/{name}"
        linux.bind("/sys/empty" if os.path.isdir(path) else "/sys/dev/null", path)
    linux.bind("/sys/proc/sys", "/sys/proc/sys")
    linux.make_read_only("/sys/proc/sys")
    linux.pivot("/sys")


def take_descriptors(output: int, status: int) -> None:
    """0 at its end, 1 and 2 the output, 3 the report (closed by exec), nothing else."""
    spare = fcntl.fcntl(status, fcntl.F_DUPFD_CLOEXEC, 64)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(output, 1)
    os.dup2(1, 2)
    os.dup2(nothing, 0)
    os.dup2(spare, STATUS, inheritable=False)
    os.closerange(STATUS + 1, 65536)


def _raise_loopback() -> None:
    """Code under test may talk to itself; nothing else is in this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, _LOOPBACK_UP)


def _limit(limits: Mapping[str, Any]) -> None:
    cpu, size = limits["cpu_s"], limits["file_mb"] << 20
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"] + 1, limits["processes"] + 1))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (819200, 819200))
    if limits["address_space_mb"]:
        space = limits["address_space_mb"] << 20
        resource.setrlimit(resource.RLIMIT_AS, (space, space))


def start(request: Mapping[str, Any]) -> int:
    """Start the command by exec; its process id. A command that cannot be started raises OSError."""
    environment = request["environment"]
    path = _find(request["argv"][0], environment.get("PATH", "/usr/bin:/bin"))
    default = [s for s in range(1, signal.NSIG) if s not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]
    return os.posix_spawn(path, request["argv"], environment, setsid=True, setsigmask=(), setsigdef=default)


def _find(name: str, search: str) -> str:
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if "/" in name:
        return name
    found = None
    for folder in search.split(":"):
        path = os.path.join(folder or ".", name)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            found = path
    if found:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def cannot_start(request: Mapping[str, Any], error: OSError) -> None:
    """Say what a shell would say and report its exit code: 127 not found, 126 found but not to be run."""
    reason = os.strerror(error.errno or 0)
    os.write(1, f"cannot run {request['argv'][0]!r} in {request['cwd']!r}: {reason}\n".encode(errors="replace"))
    report({"status": (127 if error.errno == errno.ENOENT else 126) << 8, "cpu_s": 0.0})


def report(result: Mapping[str, Any]) -> None:
    os.write(STATUS, json.dumps(result).encode())


def watch(main: int) -> NoReturn:
    """Reap whatever ends until the command itself does, then report and take everything down."""
    while True:
        ended, status, usage = os.wait4(-1, 0)
        if ended == main:
            report({"status": status, "cpu_s": usage.ru_utime + usage.ru_stime})
            os._exit(0)
