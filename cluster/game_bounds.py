"""Bounds of the welfare of games, kept on disk by what they depend on: the instance, its demand, the program's text."""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
from refork.envs.graph_game import bound, joint_program, program
from refork.envs.graph_game.bound import upper_bound
from refork.envs.graph_game.instance import Instance
from refork.envs.home import home


class BoundCache:
    """Below `bounds/` of refork's home; a bound is solved once on a machine."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or home() / "bounds"
        sources = b"".join(Path(str(module.__file__)).read_bytes() for module in (bound, joint_program, program))
        self._program = hashlib.sha256(sources).hexdigest()

    def upper(self, instance: Instance, demand: np.ndarray | None = None) -> float:
        """Welfare that no policy exceeds; `demand` (T, N) as drawn, None: the instance's."""
        sha = hashlib.sha256(f"{self._program}{instance.digest()}".encode())
        sha.update(b"" if demand is None else np.ascontiguousarray(demand).tobytes())
        path = self._folder / f"{sha.hexdigest()[:32]}.json"
        if (kept := _read(path)) is not None:
            return kept
        value = upper_bound(instance, demand)
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps({"game": instance.name, "upper": value}))
        os.replace(aside, path)
        return value


def _read(path: Path) -> float | None:
    """The bound kept there; None where there is none or the file is damaged: it is solved again then."""
    try:
        value = float(json.loads(path.read_text())["upper"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return value if math.isfinite(value) else None
