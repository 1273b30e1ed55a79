"""The Docker daemon as the sandbox sees it: connect, make containers at a bounded rate, sweep what has no owner."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import random
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions
from refork.envs.forkable import InfraFailure
from refork.envs.owner import alive, owner
from refork.envs.swe.sandbox.base import UnsupportedHost

LABEL = "refork.owner"
RUN_LABEL = "refork.run"
MACHINE_LABEL = "refork.machine"
CREATES_AT_ONCE = 4
"""Containers being made at the same time by all processes of this host: more of them overload a daemon."""
ATTEMPTS = 5

_log = logging.getLogger(__name__)
_TRANSIENT = (None, 409, 429, 500, 502, 503, 504)
"""Statuses of the daemon's answer that may pass; None: there was no answer."""


def connect(timeout_s: float = 120.0) -> docker.APIClient:
    """A client of the daemon that DOCKER_HOST (else the default socket) names. Raises UnsupportedHost with the cure."""
    try:
        settings = docker.utils.kwargs_from_env()
        client = docker.APIClient(version="auto", timeout=timeout_s, **settings)
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise UnsupportedHost(_unreachable(_root_cause(error))) from error
    return client


def _root_cause(error: BaseException) -> BaseException:
    """The first of the errors that led to this one: the transport wraps what the system said three times over."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return error


def _unreachable(error: BaseException) -> str:
    where = docker.utils.kwargs_from_env().get("base_url") or "unix:///var/run/docker.sock"
    if "Permission denied" in str(error):
        cure = "add your user to the group that owns the socket (usually `docker`)"
    else:
        cure = "start the daemon or set DOCKER_HOST to one that runs"
    return f"the Docker daemon at {where} cannot be used: {error}. To go on: {cure}, or choose the overlay backend"


@contextlib.contextmanager
def infra(what: str) -> Iterator[None]:
    """Turn every error of the daemon or the line to it into an InfraFailure that says `what` was being done."""
    try:
        yield
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise InfraFailure(f"{what}: {explain(error)}") from error


def explain(error: BaseException) -> str:
    """The daemon's own words, with the usual cures added."""
    text = getattr(error, "explanation", None) or str(error)
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    if "no space left" in text.lower():
        return f"{text} (the disk under the daemon's data root is full: free some, or `docker system prune`)"
    if (isinstance(error, docker.errors.APIError) and error.status_code == 429) or "toomanyrequests" in text:
        return f"{text} (the registry limits pulls: log in with `docker login`, or wait)"
    return text


def _status(error: BaseException) -> int | None:
    return error.status_code if isinstance(error, docker.errors.APIError) else None


@contextlib.contextmanager
def creation_slot(folder: Path) -> Iterator[None]:
    """One of CREATES_AT_ONCE places of this host, waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        for number in random.sample(range(CREATES_AT_ONCE), CREATES_AT_ONCE):
            with open(folder / f"create-{number}.lock", "w") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield
                return
        time.sleep(0.02 + random.random() * 0.03)


def machine() -> str:
    """Tells hosts that share one daemon apart."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            if text := Path(path).read_text().strip():
                return text
    return socket.gethostname()


def labels(run: str) -> dict[str, str]:
    """What every container of ours carries."""
    return {LABEL: owner(), RUN_LABEL: run, MACHINE_LABEL: machine()}


def create_started(
    client: docker.APIClient, config: Mapping[str, Any], slots: Path, prefix: str = "refork"
) -> tuple[str, Any]:
    """Create, attach and start a container; its name and the stream to its process.

    At most CREATES_AT_ONCE at a time on this host; what may pass is tried again, later each time. A container whose
    start fails is removed. Raises InfraFailure.
    """
    for attempt in range(ATTEMPTS):
        try:
            with creation_slot(slots):
                return _create(client, config, f"{prefix}-{uuid.uuid4().hex[:16]}")
        except docker.errors.ImageNotFound as error:
            raise InfraFailure(f"image {config['Image']} is not there: {explain(error)}") from error
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            if attempt == ATTEMPTS - 1 or _status(error) not in _TRANSIENT:
                text = f"no container could be made from image {config['Image']} (attempt {attempt + 1})"
                raise InfraFailure(f"{text}: {explain(error)}") from error
            pause = min(0.25 * 2**attempt, 4.0) * (0.5 + random.random())
            _log.warning("making a container failed, trying again in %.1f s: %s", pause, explain(error))
            time.sleep(pause)
    raise AssertionError("unreachable")


def _create(client: docker.APIClient, config: Mapping[str, Any], name: str) -> tuple[str, Any]:
    client.create_container_from_config(dict(config), name)
    try:
        stream = client.attach_socket(name, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        client.start(name)
    except BaseException:
        remove(client, name)
        raise
    return name, stream


def remove(client: docker.APIClient, name: str) -> bool:
    """Remove a container in whatever state, by force; whether it was there. Raises InfraFailure when it stays."""
    with infra(f"container {name} could not be removed"):
        try:
            client.remove_container(name, v=True, force=True)
        except docker.errors.NotFound:
            return False
        except docker.errors.APIError as error:
            if error.status_code != 409:  # 409: its removal is already under way
                raise
        return True


def sweep(client: docker.APIClient | None = None) -> list[str]:
    """Remove every container, in any state, that this machine made and whose owner is dead; their names."""
    client = client or connect()
    with infra("containers could not be listed"):
        found = client.containers(all=True, filters={"label": [LABEL, f"{MACHINE_LABEL}={machine()}"]})
    orphans = [c["Id"] for c in found if not alive(c["Labels"][LABEL])]
    return [name for name in orphans if remove(client, name)]
