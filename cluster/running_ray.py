"""The Ray that a run works on: a private one on this machine, one that is there already, or that of a Ray worker."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from refork.cluster.local_ray import LocalRay, keeping_sigterm, ray, stay_on_loopback
from refork.cluster.node_sweep import sweep_nodes
from refork.cluster.ray_door import is_let_in
from refork.cluster.resources import PRIVATE, Need, check_cluster, check_resources
from refork.envs.forkable import BadInput

_PROBE_S = 10.0
"""Seconds in which something must listen at an address; Ray itself would ask for two minutes."""


class RunningRay(Protocol):
    """This process's way in."""

    folder: Path
    """For files of this run that end with it."""

    def stop(self) -> None:
        """Leave; what was started for this run alone is ended."""


@dataclass
class OwnRay:
    """That of the worker that this process is: nothing to enter or to leave."""

    folder: Path = Path(tempfile.gettempdir())

    def stop(self) -> None:
        pass


@dataclass
class JoinedRay:
    """A cluster that others started, and that goes on after this run."""

    folder: Path

    @classmethod
    def join(cls, address: str, need: Need) -> Self:
        """`address`: "auto" (the one that this process is part of, or this host's) or HOST:PORT of its head.

        Raises BadInput when nothing answers there, it does not take our token, runs other versions, or lacks room.
        """
        _probe(address)
        if not is_let_in(address):
            raise BadInput(_refused(address, "the token is missing or wrong"))
        stay_on_loopback(False)
        try:
            with keeping_sigterm():
                ray.init(address=address, configure_logging=False, log_to_driver=False)
        except (ray.exceptions.AuthenticationError, ConnectionError) as error:
            raise BadInput(_refused(address, str(error).splitlines()[0].split(". ")[0])) from error
        except RuntimeError as error:
            said = " ".join(str(error).split())
            if "ersion mismatch" not in said:
                raise
            raise BadInput(f"cluster.address {address}: {said}; install on both sides the same versions") from error
        try:
            check_cluster(need, [node["Resources"] for node in ray.nodes() if node["Alive"]], address)
        except BadInput:
            ray.shutdown()
            raise
        return cls(Path(tempfile.mkdtemp(prefix="refork-run-")))

    def stop(self) -> None:
        """What actors that were killed left behind on their nodes goes with the next run, or with `refork clean`."""
        ray.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)


def open_ray(address: str, need: Need) -> RunningRay:
    """Raises BadInput for what there is no room for, InfraFailure when a private one does not come up."""
    if address != PRIVATE:
        joined = JoinedRay.join(address, need)
        sweep_nodes()
        return joined
    check_resources(need)
    resources = need.total
    return LocalRay.start(resources.pop("CPU"), resources)


def _probe(address: str) -> None:
    """Does anything listen there? Raises BadInput."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if not host or "/" in host or not port.isdecimal():
        raise BadInput(
            f"cluster.address {address}: is neither local, auto nor HOST:PORT of a head; what has an http:// address "
            "is a job server: use `refork launch`"
        )
    try:
        with contextlib.closing(socket.create_connection((host, int(port)), timeout=_PROBE_S)):
            return
    except (OSError, OverflowError) as error:
        raise BadInput(
            f"cluster.address {address}: nothing answers there ({error}); is the cluster up, and is this the port of "
            "its head (6379 as a rule)?"
        ) from error


def _refused(address: str, said: str) -> str:
    if address == "auto" and "Could not find any running Ray" in said:
        return "cluster.address auto: this machine is part of no Ray cluster; start one, or give HOST:PORT of a head"
    return (
        f"cluster.address {address}: not let in: {said}; the cluster's token belongs in RAY_AUTH_TOKEN_PATH (a file) "
        "or RAY_AUTH_TOKEN"
    )
