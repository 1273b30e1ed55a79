"""Room for checkpoints: a budget for all of them together, and what is to stay free on their disk."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refork.trainers.config import CheckpointConfig

GB = 10**9


class NoRoom(OSError):
    """A checkpoint does not fit; the message gives the numbers and what to do."""


@dataclass(frozen=True)
class Room:
    """Limits in bytes."""

    budget: int = 0
    """Of all checkpoints together, while the new one is written beside the old; 0: none."""
    free: int = 0
    """What a save must leave free on the disk."""

    def lack(self, folder: Path, need: int, given_up: Sequence[Path] = (), last: bool = False) -> str | None:
        """Why `need` more bytes do not fit in `folder`, were `given_up` deleted; None when they do.

        `last`: the run ends with this one, so what was to stay free is there for it.
        """
        gained = sum(size_of(path) for path in given_up)
        used, free = size_of(folder) - gained, shutil.disk_usage(folder).free + gained
        floor = 0 if last else self.free
        if self.budget and used + need > self.budget:
            return (
                f"it takes {_gb(need)} GB beside {_gb(used)} GB that must stay, and checkpoint.budget_gb is "
                f"{_gb(self.budget)}; raise it"
            )
        if free - need < floor:
            return (
                f"it takes {_gb(need)} GB, {_gb(free)} GB can be had on the disk, and checkpoint.free_gb leaves "
                f"{_gb(floor)} free; make room or lower it"
            )
        return None


def room_of(config: CheckpointConfig) -> Room:
    """The limits of a job."""
    return Room(round(config.budget_gb * GB), round(config.free_gb * GB))


def size_of(path: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _gb(size: int) -> str:
    return f"{size / GB:.3g}"
