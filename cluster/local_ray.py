"""A private Ray on this machine: loopback only, behind a token, in a temporary folder of its own, gone with its owner.

Two of them on one host do not meet: every port is chosen free and nothing is looked up in shared places.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

# Ray reads these while it is imported, so they are set here and Ray is imported by way of this module alone.
os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the switch that keeps all of Ray on 127.0.0.1, on every system
    "RAY_USAGE_STATS_ENABLED": "0",
}

import ray
from refork.cluster.reaper import make_ray_folder, remove_ray_folder
from refork.envs.forkable import InfraFailure

__all__ = ["LocalRay", "keeping_sigterm", "ray", "stay_on_loopback"]

log = logging.getLogger("refork.ray")

_TOKEN = secrets.token_hex(32)
"""One for all clusters of this process: Ray reads a token once and keeps it."""
_OBJECT_STORE = 256 << 20
"""Bytes. Groups are sent as soon as they are played, so little is in the store at once."""


def stay_on_loopback(stay: bool) -> None:
    """Whether the Rays that this process starts or joins from now on have 127.0.0.1 as their only address."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if stay else "1"
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = not stay


@contextlib.contextmanager
def keeping_sigterm() -> Iterator[None]:
    """Ray, when it starts, has SIGTERM end the process on the spot; ours saves first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, ours)


@dataclass
class LocalRay:
    """The running cluster of this process; one at a time, since Ray is a singleton per process."""

    folder: Path
    watchdog: subprocess.Popen[bytes]

    @classmethod
    def start(cls, cpus: float, resources: Mapping[str, float] | None = None) -> Self:
        """With that much to give away, cores as Ray counts them and others. Raises InfraFailure when it does not come
        up."""
        folder = make_ray_folder()
        os.environ |= _environment(folder)
        stay_on_loopback(True)
        watchdog = subprocess.Popen(
            [sys.executable, "-m", "refork.cluster.reaper", str(os.getpid()), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        cluster = cls(folder, watchdog)
        try:
            cluster._init(cpus, resources or {})
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def _init(self, cpus: float, resources: Mapping[str, float]) -> None:
        ray._private.worker.print_to_stdstream = _to_log  # stdout is for results; causes reach us as exceptions
        settings: dict[str, Any] = {"_temp_dir": str(self.folder), "log_to_driver": False}
        try:
            with keeping_sigterm():
                ray.init(
                    address="local",
                    num_cpus=math.ceil(cpus),
                    num_gpus=0,
                    resources=dict(resources),
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    configure_logging=False,
                    **settings,
                )
        except (RuntimeError, OSError, ValueError, ray.exceptions.RayError) as error:
            reason = str(error).splitlines()[0]
            raise InfraFailure(f"Ray did not start: {reason}; see `refork doctor`, or --rollout.actors 0") from error

    def stop(self) -> None:
        """End every process of the cluster and remove its folder."""
        ray.shutdown()
        remove_ray_folder(self.folder)
        self.watchdog.terminate()
        self.watchdog.wait()


def _to_log(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    """What Ray would print on stdout in several lines of advice."""
    for line in data["lines"]:
        log.debug("%s: %s", data["pid"], line)


def _environment(folder: Path) -> dict[str, str]:
    token = folder / "token"
    with os.fdopen(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(_TOKEN)
    return {
        "RAY_AUTH_TOKEN_PATH": str(token),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",  # learners meet on 127.0.0.1 as well
    }
