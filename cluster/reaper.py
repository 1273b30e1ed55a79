"""Clears away what runs left behind: processes of a cluster whose owner died, temporary folders, layers, containers.

Everything is told by its owner's label (`envs/owner.py`): what a living process owns is never touched. Run as a module
this is the watchdog that a run starts beside its Ray: it waits for the run's end and then ends what is left of it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from refork.cluster.log_cache import collect_logs
from refork.envs.forkable import InfraFailure
from refork.envs.home import home
from refork.envs.owner import alive, owner
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.envs.swe.sandbox.docker_state import sweep_states
from refork.envs.swe.sandbox.e2b_client import Service
from refork.envs.swe.sandbox.e2b_client import sweep as sweep_service
from refork.envs.swe.sandbox.e2b_states import collect_bases
from refork.envs.swe.sandbox.layers import sweep as sweep_layers
from refork.envs.swe.sandbox.owned import collect as collect_layers

log = logging.getLogger("refork.reaper")

_RAY_PREFIX = "refork-ray-"


def make_ray_folder() -> Path:
    """A new folder for a Ray of this process, labelled by an `owner` file.

    Ray's socket paths in it must fit in 107 bytes, so a long TMPDIR is not followed.
    """
    place = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=_RAY_PREFIX, dir=place if len(place) <= 20 else "/tmp"))
    (folder / "owner").write_text(owner())
    return folder


def holders(folder: Path) -> list[int]:
    """Processes that hold a file open below `folder`, this one left out.

    All processes of a Ray do: their logs are there. (Their environment tells nothing: some overwrite it with a title.)
    """
    inside = f"{folder}/"
    return [pid for pid in _processes() if any(target.startswith(inside) for target in _open_files(pid))]


def _processes() -> list[int]:
    own = os.getpid()
    return [int(e.name) for e in Path("/proc").iterdir() if e.name.isdecimal() and int(e.name) != own]


def _open_files(pid: int) -> list[str]:
    """What the descriptors of a process lead to; none for one that is gone or another user's."""
    targets = []
    try:
        for descriptor in os.scandir(f"/proc/{pid}/fd"):
            targets.append(os.readlink(descriptor.path))
    except OSError:
        return targets
    return targets


def end_holders(folder: Path, patience_s: float = 10.0) -> int:
    """Kill every process that holds a file open below `folder`, until none is left; how many were killed."""
    killed: set[int] = set()
    deadline = time.monotonic() + patience_s
    while (left := holders(folder)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.add(pid)
        time.sleep(0.05)
    return len(killed)


def remove_ray_folder(folder: Path) -> None:
    """End what is left of the Ray that lives in `folder`, then remove it."""
    end_holders(folder)
    shutil.rmtree(folder, ignore_errors=True)


def sweep_ray_folders() -> int:
    """End and remove the Rays of dead owners; how many."""
    swept = 0
    for place in sorted({tempfile.gettempdir(), "/tmp"}):
        for path in Path(place).glob(f"{_RAY_PREFIX}*"):
            if path.stat().st_uid == os.getuid() and not _in_use(path):
                remove_ray_folder(path)
                swept += 1
    return swept


def _in_use(folder: Path) -> bool:
    """Its owner lives, or it is so young that its owner may not have signed it yet."""
    label = folder / "owner"
    return alive(label.read_text()) if label.exists() else time.time() - folder.stat().st_mtime < 60


def sweep() -> dict[str, int | None]:
    """Remove everything that has no living owner; counts by kind, None where there was no answer. Cheap when there is
    nothing."""
    return {
        "ray folders": sweep_ray_folders(),
        "owners of sandbox layers": sweep_layers(home() / "layers"),
        "containers": _sweep_containers(),
        "owners of container states": sweep_states(home() / "docker"),
        "sandboxes and snapshots of the e2b service": _in_service(sweep_service),
    }


def collect() -> dict[str, int | None]:
    """Remove what no living process uses and is made again when needed; counts as of `sweep`."""
    return {
        "unused copies of workspaces": collect_layers(home() / "layers", ()),
        "unused copies of workspaces in the e2b service": _in_service(collect_bases),
        "unused conversions of logs": collect_logs(),
    }


def _sweep_containers() -> int | None:
    """0 where there is no Docker to ask; None: it did not answer."""
    from refork.envs.swe.sandbox.docker_client import connect
    from refork.envs.swe.sandbox.docker_client import sweep as sweep_containers

    try:
        client = connect()
    except UnsupportedHost:
        return 0
    with contextlib.closing(client):
        try:
            return len(sweep_containers(client))
        except InfraFailure as failure:
            log.warning("containers of dead runs were not removed: %s", failure)
            return None


def _in_service(clear: Callable[[Service], int]) -> int | None:
    """What `clear` has removed; 0 where there is no service to ask: no package or no key; None: it did not answer."""
    try:
        return clear(Service(attempts=1, request_s=10.0))  # a start does not wait for a service it may not need
    except UnsupportedHost:
        return 0
    except InfraFailure as failure:
        log.warning("the e2b service cannot be asked for what dead runs left there: %.200s", failure)
        return None


def watch(pid: int, folder: Path) -> None:
    """Wait until process `pid` is gone, then end the Ray that lives in `folder`, and sweep."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        descriptor = -1
    if descriptor >= 0:
        select.select([descriptor], [], [])
    remove_ray_folder(folder)
    sweep()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the run; this one waits for its end
    watch(int(sys.argv[1]), Path(sys.argv[2]))
