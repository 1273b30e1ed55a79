"""Inside the service's machine: one request done as root, in namespaces that end with it.

Nothing of ours runs between two requests, so a snapshot of the machine holds files and no process of ours. The
supervisor of the Docker backend answers, as process 1 of a new process namespace without network, where all but
/testbed, /tmp and /dev/shm is read-only. What it knows of the tree is kept in a file for the next request. Standard
library only and Python 3.9 syntax: it must run on the interpreter of any template.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import sys
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refork.envs.swe.sandbox import linux
from refork.envs.swe.sandbox.supervisor import Supervisor, told
from refork.envs.swe.sandbox.supervisor_exec import become_command, exec_command, prepare
from refork.envs.swe.sandbox.supervisor_tree import Tree
from refork.envs.swe.sandbox.supervisor_watch import Command

FOLDER = "/var/refork"
ROOTS = {"/testbed": f"{FOLDER}/work", "/tmp": f"{FOLDER}/tmp"}
MARK = "refork-reply:"
_NAMESPACES = 0x6C020000
"""mount, pid, net, ipc and uts."""
_TREE = f"{FOLDER}/tree.json"
_QUIET = linux.MS_NOSUID | linux.MS_NODEV
_SIOCSIFFLAGS, _LOOPBACK_UP = 0x8914, struct.pack("16sh", b"lo", 1)


class OneShot(Supervisor):
    """A supervisor that bounds a command by what needs no control group of its own."""

    def _start(self, request: dict[str, Any], write_end: int) -> Command:
        request["warm"] = False
        pid = os.fork()
        if pid == 0:
            _bound(request["limits"])
            become_command(request, write_end, self.filters)
            exec_command(request)
        return Command(pid, self.wakeup)

    def remember(self) -> str:
        """Take the tree over from the last request; the serial number of what was told then, '' for nothing."""
        try:
            with open(_TREE, encoding="ascii") as source:
                known = json.load(source)
        except FileNotFoundError:
            return ""
        self.tree.rows = self.reported = known["rows"]
        self.tree._stamps = {path: tuple(stamp) for path, stamp in known["stamps"].items()}
        return str(known["serial"])

    def tell(self, host_has: str, last: str) -> dict[str, Any]:
        """The rows that the host lacks, and the serial number of what it has with them; kept for the next request."""
        if host_has != last:
            self.reported = {}
        self.tree.scan()
        changed, gone = self.tree.changes_from(self.reported)
        serial = last
        if changed or gone or host_has != last or not last:
            serial = uuid.uuid4().hex
        with open(_TREE + ".part", "w", encoding="ascii") as target:
            json.dump({"serial": serial, "rows": self.tree.rows, "stamps": self.tree._stamps}, target)
        os.replace(_TREE + ".part", _TREE)
        return {"changed": changed, "gone": gone, "serial": serial, "whole": host_has != last}


def _bound(limits: Mapping[str, Any]) -> None:
    """The limits that a container has as a whole, by process and by user."""
    space = limits["memory_mb"] << 20
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as source:
        fields = [line.split() for line in source]
    return [row[4].encode("latin-1", "ignore").decode("unicode_escape") for row in fields]


def _enter_tree() -> None:
    """In the new mount namespace: the state at its place, everything else read-only."""
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    others = [point for point in _mount_points() if point != "/proc" and not point.startswith("/proc/")]
    linux.mount("proc", "/proc", "proc", _QUIET | linux.MS_NOEXEC)
    linux.bind(FOLDER, FOLDER)
    for place, source in ROOTS.items():
        linux.bind(source, place)
    os.makedirs("/dev/shm", exist_ok=True)
    linux.mount("tmpfs", "/run", "tmpfs", _QUIET, "size=1m,mode=755")  # sockets of the machine's own services
    linux.mount("tmpfs", "/dev/shm", "tmpfs", _QUIET | linux.MS_NOEXEC, "size=64m,mode=1777")
    for point in (*others, "/run"):
        if point not in (FOLDER, "/dev/shm", *ROOTS):
            with contextlib.suppress(FileNotFoundError):  # hidden below another mount
                linux.make_read_only(point, recursive=False)


def _raise_loopback() -> None:
    """Code under test may talk to itself; nothing else is in this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, _LOOPBACK_UP)


def _serve(request: dict[str, Any], body: bytes) -> dict[str, Any]:
    """As process 1: do the request and report how it went and what the tree holds now."""
    read_end, wakeup = os.pipe()
    for end in (read_end, wakeup):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _enter_tree()
    _raise_loopback()
    prepare()
    with open(f"{FOLDER}/config.json", encoding="ascii") as source:
        config = json.load(source)
    supervisor = OneShot(read_end)
    supervisor.uid = config["uid"]
    supervisor.tree = Tree(list(ROOTS), config["volatile"], config["uid"])
    supervisor.filters = [base64.b64decode(config["filters"][linux.machine()])]
    last = supervisor.remember()
    try:
        header, payload = getattr(supervisor, "op_" + request["op"])(request, memoryview(body))
    except (OSError, ValueError) as error:
        header, payload = told(error), b""
    return {"header": header, "body": base64.b64encode(payload).decode(), "tree": supervisor.tell(request["has"], last)}


def _in_namespaces(request: dict[str, Any], body: bytes) -> bytes:
    """The reply of a child that is process 1 of its own namespaces; it cannot outlive this process."""
    linux.unshare(_NAMESPACES)
    host, host_gone = os.pipe()
    reply, told_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.die_with_parent()
        os.close(host_gone)
        os.dup2(host, 0)
        answer = zlib.compress(json.dumps(_serve(request, body)).encode())
        with open(told_end, "wb") as target:
            target.write(answer)
        os._exit(0)
    os.close(told_end)
    with open(reply, "rb") as source:
        answer = source.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"the supervisor ended with wait status {status}")
    return answer


def read_request(argument: str) -> tuple[dict[str, Any], bytes]:
    """A request and its body, packed in the argument itself or, after an '@', in a file that is removed."""
    if argument.startswith("@"):
        packed = Path(argument[1:]).read_bytes()
        os.unlink(argument[1:])
    else:
        packed = base64.b64decode(argument)
    data = zlib.decompress(packed)
    size = int.from_bytes(data[:4], "big")
    return json.loads(data[4 : 4 + size]), data[4 + size :]


def main() -> None:
    """Do the request that the first argument holds and print the packed reply."""
    answer = _in_namespaces(*read_request(sys.argv[1]))
    sys.stdout.write(f"\n{MARK}{base64.b64encode(answer).decode()}\n")
