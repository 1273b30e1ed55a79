"""What of Docker works here, for `refork doctor`; leaves nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import docker
from refork.envs.forkable import InfraFailure
from refork.envs.swe import images
from refork.envs.swe.sandbox.base import Finding, UnsupportedHost
from refork.envs.swe.sandbox.docker_boot import MACHINES
from refork.envs.swe.sandbox.docker_client import connect


def probe() -> list[Finding]:
    """The daemon, its machine, the limits it can set, and where the base image comes from."""
    try:
        client = connect(timeout_s=10.0)
    except UnsupportedHost as error:
        return [Finding("docker daemon", False, str(error), "start a Docker daemon, or use the overlay backend")]
    with contextlib.closing(client):
        return [*daemon_findings(client.info()), base_finding(client)]


def daemon_findings(info: Mapping[str, Any]) -> Iterator[Finding]:
    """By what the daemon tells of itself."""
    where = f"version {info['ServerVersion']}, {info['Driver']} under {info['DockerRootDir']}"
    yield Finding("docker daemon", True, where)
    machine = info["Architecture"]
    yield Finding("docker machine", machine in MACHINES, machine, f"run a daemon on one of {', '.join(MACHINES)}")
    missing = [name for name in ("MemoryLimit", "SwapLimit", "PidsLimit") if not info.get(name)]
    detail = f"the daemon cannot set {', '.join(missing)}" if missing else "memory, swap and processes"
    yield Finding("docker limits", not missing, detail, "enable the memory and pids control groups of its kernel")


def base_finding(client: docker.APIClient) -> Finding:
    """Whether an image that sandboxes can be made on is there or can be had."""
    try:
        return Finding("docker base image", True, images.base_plan(client))
    except InfraFailure as failure:
        return Finding("docker base image", False, str(failure), "pull or load python:3.11-slim into the daemon")
