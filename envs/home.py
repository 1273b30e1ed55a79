"""Where everything is kept between runs: built tasks, layers of sandboxes, the state DAG."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from refork.envs.forkable import BadInput


def home() -> Path:
    """`$REFORK_HOME`, else `$XDG_CACHE_HOME/refork`, else `~/.cache/refork`; absolute, not created.

    Empty variables count as unset. Layout: `tasks/` (the built task set), `layers/` (overlay layer store),
    `dag/` (state DAG and execution cache), `logs/` (log files that jobs named, converted).
    """
    if chosen := os.environ.get("REFORK_HOME"):
        return Path(chosen).expanduser().absolute()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).expanduser().absolute() / "refork"
    return Path.home() / ".cache" / "refork"


def check_home() -> None:
    """Raises BadInput when nothing can be kept in `home()`."""
    check_writable(home(), "set REFORK_HOME to a folder that can be written")


def check_writable(folder: Path, remedy: str) -> None:
    """Raises BadInput, ending in `remedy`, when nothing can be written in `folder`, or where it would be made."""
    try:
        there = next(place for place in (folder, *folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written: {error.strerror}; {remedy}") from error
