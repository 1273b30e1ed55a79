"""Where the checkpoints of a run are: names, the COMMIT mark, which is the newest. Imports neither numpy nor torch."""

from __future__ import annotations

import re
from pathlib import Path

from refork.envs.forkable import BadInput

COMMIT = "COMMIT"
"""The file that is written last; without it a folder is no checkpoint."""
NAME = re.compile(r"step-(\d{8})(?:\.(\d+))?\Z")
"""Folder names: the step, and a count when a step was saved again."""


class CheckpointError(BadInput):
    """A checkpoint that cannot be used; the message says which, why, and what to do."""


def step_of(name: str) -> int:
    """The update that a checkpoint's folder is named after. Raises CheckpointError for another name."""
    if match := NAME.match(name):
        return int(match[1])
    raise CheckpointError(f"{name}: not the name of a checkpoint")


def age(name: str) -> tuple[int, int]:
    """Sorts names of checkpoints, oldest first; a step that was saved again is newer."""
    match = NAME.match(name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def committed(folder: Path) -> list[Path]:
    """Committed checkpoints in `folder`, oldest first."""
    found = [p for p in (folder.iterdir() if folder.is_dir() else ()) if NAME.match(p.name) and (p / COMMIT).exists()]
    return sorted(found, key=lambda path: age(path.name))


def find(path: Path) -> Path:
    """A checkpoint's own folder, or the newest committed one of a run. Raises CheckpointError."""
    if NAME.match(path.name) or (path / "meta.json").exists():
        return path
    for folder in (path / "checkpoints", path):
        if found := committed(folder):
            return found[-1]
    raise CheckpointError(
        f"{path}: {'holds no committed checkpoint' if path.is_dir() else 'no such checkpoint or run'}"
    )
