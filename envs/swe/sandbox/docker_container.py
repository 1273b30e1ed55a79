"""One container under our supervisor: its rights cut down, asked over its stream, brought to any content."""

from __future__ import annotations

import base64
import errno
import importlib.util
import json
import logging
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import SANDBOX_UID, TMP, VOLATILE, WORKSPACE, Entry, Limits
from refork.envs.swe.sandbox.docker_client import create_started, infra, labels, remove
from refork.envs.swe.sandbox.docker_link import Link
from refork.envs.swe.sandbox.seccomp import filter_program

_log = logging.getLogger(__name__)
ROOTS = (WORKSPACE, TMP)
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETPCAP", "SETUID")
"""What the supervisor needs to become the sandbox's user, to kill it and to reset its files; commands have none."""
SUPERVISOR_MB = 64
SUPERVISOR_PROCESSES = 2
_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EAGAIN)
_PACKAGE = "refork.envs.swe.sandbox"
_MODULES = (
    "linux",
    "trees",
    "warm",
    "wire",
    "supervisor_tree",
    "supervisor_ipc",
    "supervisor_exec",
    "supervisor_warm",
    "supervisor",
)
MACHINES = ("x86_64", "aarch64")
"""Architectures of daemons that a seccomp filter is known for."""
_BOOT = f"""
import sys
full_path = [p for p in sys.path if p]
sys.path[:] = [p for p in full_path if not p.startswith({ROOTS!r})]
import json, os, struct, types
def read(n):
    data = b""
    while len(data) < n:
        data += os.read(0, n - len(data)) or os._exit(0)
    return data
def module(name, source):
    made = sys.modules[name] = types.ModuleType(name)
    if source is None:
        made.__path__ = []
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    exec(compile(source or "", name, "exec"), made.__dict__)
    return made
for name, source in json.loads(read(struct.unpack(">I", read(4))[0])):
    last = module(name, source)
last.main(full_path)
"""
"""Takes what the sandbox's user can write out of `sys.path` first of all: root imports nothing of his."""
_FIND_PYTHON = """
for python in python python3 /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && exec "$python" -c "$0"
done
echo "the image has no Python 3.9 or newer, which the supervisor needs" >&2
exit 3
"""


class Container:
    """A running container with its last known content. Not thread-safe."""

    def __init__(self, client: docker.APIClient, name: str, link: Link, limits: Limits) -> None:
        self.client, self.name, self.link, self.limits = client, name, link, limits
        self.rows: dict[str, Entry] = {}
        """What is below /testbed and /tmp as of the last `scan` or `become`."""
        self.base_id = ""
        """Of the sandbox it last belonged to."""
        self._revision = 0

    def ask(self, op: str, *, body: Any = b"", size: int | None = None, wait_s: float = 60.0, **fields: Any) -> Any:
        """One request; (header, body) of its reply. Raises InfraFailure, and OSError or ValueError if refused."""
        header, payload = self.link.ask({"op": op, **fields}, body, size, wait_s=wait_s)
        if "error" in header:
            raise self._told(header)
        return header, payload

    def _told(self, header: Mapping[str, Any]) -> Exception:
        """The error of a reply; what is the machine's fault is an InfraFailure."""
        if header["error"] == "ValueError":
            return ValueError(header["text"])
        if header["errno"] in _MACHINE_ERRORS:
            return InfraFailure(f"in container {self.name}: {header['text']} ({header['path']})")
        return OSError(header["errno"], header["text"], header["path"])

    def scan(self) -> int:
        """Bring `rows` up to date; how often they have changed so far."""
        self._learn(self.ask("scan", wait_s=300.0)[0])
        return self._revision

    def _learn(self, header: Mapping[str, Any]) -> None:
        for path, (kind, mode, digest) in header["changed"].items():
            self.rows[path] = Entry(kind, mode, digest)
        for path in header["gone"]:
            del self.rows[path]
        self._revision += bool(header["changed"] or header["gone"])

    def become(self, target: Mapping[str, Entry], content: Callable[[str, Entry], bytes]) -> None:
        """Make the content equal to `target`; only what differs is sent. `content` gives a path's bytes."""
        self.scan()
        rows = self.rows
        gone = [p for p in rows if p not in target and (p in ROOTS or p.rpartition("/")[0] in target)]
        wrong = sorted(path for path, entry in target.items() if rows.get(path) != entry)
        data = [content(path, target[path]) for path in wrong]
        make = [[path, target[path].kind, target[path].mode, len(d)] for path, d in zip(wrong, data, strict=True)]
        if gone or make:
            total = sum(len(d) for d in data)
            self._learn(self.ask("apply", remove=gone, make=make, body=data, size=total, wait_s=300.0)[0])

    def read(self, paths: list[str]) -> Iterator[bytes]:
        """Contents of files and targets of links."""
        header, body = self.ask("read", paths=paths, wait_s=300.0)
        position = 0
        for size in header["sizes"]:
            yield body[position : position + size]
            position += size

    def limit(self, limits: Limits) -> None:
        """Set memory and processes of the container, if they are not as `limits` says."""
        if (limits.memory_mb, limits.processes) != (self.limits.memory_mb, self.limits.processes):
            url = f"{self.client.base_url}/v{self.client.api_version}/containers/{self.name}/update"
            with infra(f"limits of container {self.name} could not be changed"):
                self.client.post(url, json=_limit_fields(limits)).raise_for_status()
            self.limits = limits

    def remove(self) -> None:
        """End it and remove it. Where the daemon does not answer, a later sweep will."""
        self.link.close()
        try:
            remove(self.client, self.name)
        except InfraFailure as failure:
            _log.warning("%s; `refork clean` will remove it", failure)


def start(
    client: docker.APIClient,
    image: str,
    environment: Mapping[str, str],
    limits: Limits,
    *,
    preload: tuple[str, ...],
    run: str,
    slots: Path,
) -> Container:
    """A new container under the supervisor. Raises InfraFailure; then nothing of it stays."""
    config = _config(image, environment, limits, run)
    name, stream = create_started(client, config, slots)
    container = Container(client, name, Link(stream, name), limits)
    try:
        _greet(container, preload)
    except BaseException:
        container.remove()
        raise
    return container


def _greet(container: Container, preload: tuple[str, ...]) -> None:
    with infra("the daemon could not be asked for its machine"):
        machine = container.client.info()["Architecture"]
    if machine not in MACHINES:
        raise InfraFailure(f"no seccomp filter is known for the daemon's machine {machine!r}")
    filters = [base64.b64encode(filter_program(machine)).decode()]
    container.link.send(_sources(), wait_s=60.0)
    hello: dict[str, Any] = {
        "roots": ROOTS,
        "volatile": VOLATILE,
        "uid": SANDBOX_UID,
        "filters": filters,
        "preload": preload,
    }
    container.ask("hello", **hello)


def _sources() -> bytes:
    """The supervisor's modules, as the boot code reads them."""
    parts = _PACKAGE.split(".")
    packages = [(".".join(parts[: i + 1]), None) for i in range(len(parts))]
    modules = [(f"{_PACKAGE}.{name}", _source(f"{_PACKAGE}.{name}")) for name in _MODULES]
    data = json.dumps([*packages, *modules]).encode()
    return struct.pack(">I", len(data)) + data


def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise InfraFailure(f"the source of {module} is not installed")
    return Path(found.origin).read_text()


def _limit_fields(limits: Limits) -> dict[str, int]:
    memory = (limits.memory_mb + SUPERVISOR_MB) << 20
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "PidsLimit": limits.processes + SUPERVISOR_PROCESSES,
    }


def _config(image: str, environment: Mapping[str, str], limits: Limits, run: str) -> dict[str, Any]:
    host = {
        "AutoRemove": True,
        "CapAdd": list(CAPABILITIES),
        "CapDrop": ["ALL"],
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "NetworkMode": "none",
        "SecurityOpt": ["no-new-privileges"],
        "ShmSize": 64 << 20,
        **_limit_fields(limits),
    }
    return {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", _FIND_PYTHON, _BOOT],
        "Cmd": [],
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Hostname": "sandbox",
        "Labels": labels(run),
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "User": "0:0",
        "WorkingDir": "/",
        "HostConfig": host,
    }
