"""Where everything is kept between runs: built tasks, layers of sandboxes, the state DAG."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """`$REFORK_HOME`, else `$XDG_CACHE_HOME/refork`, else `~/.cache/refork`; absolute, not created.

    Empty variables count as unset. Layout: `tasks/` (the built task set), `layers/` (overlay layer store),
    `dag/` (state DAG and execution cache).
    """
    if chosen := os.environ.get("REFORK_HOME"):
        return Path(chosen).expanduser().absolute()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).expanduser().absolute() / "refork"
    return Path.home() / ".cache" / "refork"
