"""What a user without this project would do: the docker command line, one client process per step."""

from __future__ import annotations

import subprocess
import uuid
from functools import partial

from refork.envs.swe.images import local_image
from refork.envs.swe.sandbox.docker_client import connect
from refork.scripts.bench.sandboxes import timed


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def _start(image: str) -> str:
    return _docker("run", "--detach", "--network", "none", "--entrypoint", "sleep", image, "infinity")


def _fork(origin: str, name: str, started: list[str]) -> None:
    _docker("commit", origin, name)
    started.append(_start(name))
    _docker("exec", started[0], "true")


def commit_run_exec(repeats: int) -> list[float]:
    """Milliseconds of `docker commit`, `docker run` and `docker exec true`, all clean-up left out."""
    client = connect()
    image = local_image(client, None)
    client.close()
    origin, times = _start(image), []
    try:
        for number in range(repeats):
            _docker("exec", origin, "sh", "-c", f"echo {number} > /tmp/dirty")
            name = f"refork-bench-{uuid.uuid4().hex}"
            started: list[str] = []
            times.append(timed(partial(_fork, origin, name, started)))
            _docker("rm", "--force", started[0])
            _docker("rmi", name)
    finally:
        _docker("rm", "--force", origin)
    return times


def exec_true(repeats: int) -> list[float]:
    """Milliseconds of `docker exec CONTAINER true`."""
    client = connect()
    image = local_image(client, None)
    client.close()
    container = _start(image)
    try:
        return [timed(lambda: _docker("exec", container, "true")) for _ in range(repeats)]
    finally:
        _docker("rm", "--force", container)
