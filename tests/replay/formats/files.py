"""A small cohort table on disk, whole or with one thing wrong."""

from __future__ import annotations

from pathlib import Path

from refork.replay.formats.kinds import to_native
from refork.replay.transitions import Transitions, load, notes_of

HEADER = "traj,patient,step,o:map,o:lactate,a:iv,a:vaso,r:reward"
ROWS = (
    "s1,p1,0,70,1.5,0,1,0",
    "s1,p1,1,65,2.5,2,0,0",
    "s1,p1,3,75,1.0,0,0,1",
    "s2,p2,0,60,4.0,4,2,-1",
    "s3,p1,5,80,1.2,1,0,0",
    "s3,p1,6,81,1.1,0,0,0.5",
)
SCHEMA = """\
[columns]
episode = "traj"
patient = "patient"
step = "step"
observations = ["o:*"]
actions = ["a:*"]
reward = "r:reward"
{columns}
[action]
kind = "discrete"
counts = [5, 3]
{action}
[episode]
end = "{end}"
{episode}
[time]
unit = "4 h"
[reward]
text = "points"
[missing]
{missing}
"""


def schema(columns: str = "", action: str = "", end: str = "terminated", episode: str = "", missing: str = "") -> str:
    """The schema of the small table, with more in its sections."""
    return SCHEMA.format(columns=columns, action=action, end=end, episode=episode, missing=missing)


def write(folder: Path, rows: tuple[str, ...] | list[str] = ROWS, header: str = HEADER, declared: str = "") -> Path:
    """The table as `small.csv`, its schema beside it."""
    path = folder / "small.csv"
    path.write_text("\n".join((header, *rows)) + "\n")
    (folder / "small.schema.toml").write_text(declared or schema())
    return path


def read(path: Path, declared: Path | None = None) -> Transitions:
    """Converted beside the file and loaded."""
    folder = path.parent / f"{path.name}.log"
    to_native(path, declared, folder)
    return load(folder)


def notes(path: Path) -> dict[str, object]:
    """Of the conversion that `read` made."""
    return notes_of(path.parent / f"{path.name}.log")
