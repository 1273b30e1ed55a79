"""Is there a job server, does it guard its door, and does it run what we run? Said before anything is sent. No Ray."""

from __future__ import annotations

import http.client
import platform
import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from refork.envs.forkable import BadInput

_PROBE_S = 10.0
"""Seconds in which it must answer; Ray's own client would wait for minutes."""

_PORTS = {"http": 80, "https": 443}


def check_address(address: str) -> None:
    """Raises BadInput unless something listens at `address`, http(s)://HOST[:PORT]."""
    if not address:
        raise BadInput("no address: give --address http://127.0.0.1:8265 (or set RAY_API_SERVER_ADDRESS)")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if not host or parts.scheme not in _PORTS:
            raise ValueError("no address of a web server")
    except (KeyError, ValueError) as error:
        raise BadInput(
            f"--address {address}: must be the http address of the cluster's job server, as http://127.0.0.1:8265"
        ) from error
    try:
        socket.create_connection((host, port), timeout=_PROBE_S).close()
    except OSError as error:
        raise BadInput(
            f"--address {address}: nothing answers there ({error}); the job server listens on the head alone, at 8265 "
            "as a rule: forward it to this machine (ssh -L 8265:127.0.0.1:8265 HEAD)"
        ) from error


def check_guarded(address: str) -> None:
    """Raises BadInput for what is no job server of Ray, or one that takes jobs without a token."""
    try:
        with urllib.request.urlopen(f"{address.rstrip('/')}/api/version", timeout=_PROBE_S):
            pass
    except urllib.error.HTTPError as error:
        if error.code == 401:
            return
        raise BadInput(f"--address {address}: no job server of Ray: it answers {error.code} {error.reason}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = "it does not speak HTTP" if isinstance(error, http.client.BadStatusLine) else error
        raise BadInput(f"--address {address}: no job server of Ray: {why}; its port is 8265 as a rule") from error
    raise BadInput(
        f"--address {address}: takes requests without a token, so whoever reaches it can run anything there; start the "
        "cluster with RAY_AUTH_MODE=token (docs/cluster.md)"
    )


def check_versions(cluster: Mapping[str, str], address: str) -> None:
    """`cluster`: its `ray_version` and `python_version`. Raises BadInput when ours are others: Ray's exactly,
    Python's in the first two numbers."""
    here = {"Ray": version("ray"), "Python": _minor(platform.python_version())}
    there = {"Ray": cluster["ray_version"], "Python": _minor(cluster["python_version"])}
    for name in here:
        if here[name] != there[name]:
            raise BadInput(
                f"--address {address}: the cluster has {name} {there[name]}, this machine {here[name]}; install "
                f"{name} {there[name]} here, or {here[name]} on all nodes"
            )


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def refused(address: str, said: str) -> BadInput:
    """What to do about a token that is missing or wrong."""
    return BadInput(
        f"--address {address}: not let in: {said}; the cluster's token belongs in RAY_AUTH_TOKEN_PATH (a file) or "
        "RAY_AUTH_TOKEN"
    )
