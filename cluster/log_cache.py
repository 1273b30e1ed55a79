"""Logs that jobs named, converted to our own format: kept in `<home>/logs` and used again.

Every process that uses one leaves its label in it, so that what no living process uses can be told and removed.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from refork.envs.home import home
from refork.envs.owner import alive, owner
from refork.replay.formats.kinds import cached

_USE = "use-"
_CONVERSION_S = 3600.0
"""Seconds after its last file in which what nobody has used may still be in the making."""


def converted(path: Path, schema: Path | None) -> Path:
    """The log folder of a file, converted unless it was before; of a log folder itself. Raises BadInput."""
    folder = home() / "logs"
    kept = cached(path, schema, folder)
    if kept.parent == folder:
        with suppress(OSError):  # of another user: who cannot write here cannot remove it either
            (kept / f"{_USE}{owner()}").touch()
    return kept


def collect_logs() -> int:
    """Remove conversions that no living process uses; they are made again when needed. How many."""
    folder = home() / "logs"
    old = [path for path in folder.iterdir() if not _in_use(path)] if folder.is_dir() else []
    for path in old:
        shutil.rmtree(path, ignore_errors=True)
    return len(old)


def _in_use(log: Path) -> bool:
    uses = list(log.glob(f"{_USE}*"))
    if uses:
        return any(alive(use.name.removeprefix(_USE)) for use in uses)
    return time.time() - max(path.stat().st_mtime for path in (log, *log.glob("*"))) < _CONVERSION_S
