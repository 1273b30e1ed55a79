"""What a study has done is kept on disk, so that an interrupted one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_kept(work: Path, name: str) -> bool:
    return _path(work, name).exists()


def kept(work: Path, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, JSON, from the file of that name where it is there already."""
    path = _path(work, name)
    if not path.exists():
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(make()))
        os.replace(aside, path)
    return json.loads(path.read_text())


def _path(work: Path, name: str) -> Path:
    return work / f"{name.replace('/', '_')}.json"
