"""One container under our supervisor: its rights cut down, asked over its stream, brought to any content."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import SANDBOX_UID, VOLATILE, Entry, Limits
from refork.envs.swe.sandbox.docker_boot import BOOT, FIND_PYTHON, MACHINES, ROOTS, sources
from refork.envs.swe.sandbox.docker_client import create_started, infra, labels, remove
from refork.envs.swe.sandbox.docker_link import Link
from refork.envs.swe.sandbox.machine import MACHINE_ERRORS
from refork.envs.swe.sandbox.seccomp import filter_program

_log = logging.getLogger(__name__)
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETPCAP", "SETUID")
"""What the supervisor needs to become the sandbox's user, to kill it and to reset its files; commands have none."""
SUPERVISOR_MB = 64
SUPERVISOR_PROCESSES = 2


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
        if header["errno"] in MACHINE_ERRORS:
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
    container.link.send(sources(), wait_s=60.0)
    hello: dict[str, Any] = {
        "roots": ROOTS,
        "volatile": VOLATILE,
        "uid": SANDBOX_UID,
        "filters": filters,
        "preload": preload,
    }
    container.ask("hello", **hello)


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
        "Entrypoint": ["/bin/sh", "-c", FIND_PYTHON, BOOT],
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
