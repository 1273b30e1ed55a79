"""What a study has done is kept on disk, so that an interrupted one goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kept(work: Path, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, JSON, from the file of that name where it is there already."""
    path = work / f"{name.replace('/', '_')}.json"
    if not path.exists():
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(make()))
        os.replace(aside, path)
    return json.loads(path.read_text())
