"""Backends by name."""

from __future__ import annotations

from typing import Literal, get_args

from refork.envs.forkable import BadInput
from refork.envs.swe.sandbox.base import Backend

BackendName = Literal["overlay", "docker", "e2b", "replay"]


def check_backend(name: str) -> None:
    """Raises UnsupportedHost for a service whose package or key is missing; asks nothing of it."""
    if name == "e2b":
        from refork.envs.swe.sandbox.e2b_client import Service

        Service()


def open_backend(name: str) -> Backend:
    """Open `overlay`, `docker`, `e2b` or `replay` (over overlay). Raises BadInput for another name, UnsupportedHost."""
    if name == "docker":
        from refork.envs.swe.sandbox.docker import DockerBackend

        return DockerBackend()
    if name == "e2b":
        from refork.envs.swe.sandbox.e2b import E2BBackend

        return E2BBackend()
    if name not in get_args(BackendName):
        raise BadInput(f"no sandbox backend {name!r}; there are: {', '.join(get_args(BackendName))}")
    from refork.envs.swe.sandbox.overlay import OverlayBackend
    from refork.envs.swe.sandbox.replay import ReplayBackend

    return ReplayBackend(OverlayBackend()) if name == "replay" else OverlayBackend()
