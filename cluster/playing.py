"""Who plays, here or on an actor: a spec that cuts requests into units of work, and the class that plays one.

A unit names itself by its `task`, as a GroupRequest does; the units of given requests are always the same, so results
do not depend on how many players there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from refork.replay.experience import Experience
from refork.replay.player import GroupRequest


class Unit(Protocol):
    """What one player plays at a time."""

    @property
    def task(self) -> str:
        """The task, for messages."""


class Player(Protocol):
    """A plain class with one thread; `ray.remote` is put around it on a cluster."""

    def play(
        self, unit: Any, weights: Mapping[str, np.ndarray], version: int, how: Any = None, baseline: str = ""
    ) -> Any:
        """The experience of one unit under `weights`, or under the named `baseline` of the environment.

        `how`: what the trainer asks for (`trainers/loop.py: How`).
        """

    def pid(self) -> int:
        """The process this one lives in."""

    def close(self) -> None:
        """Leave nothing behind."""


class PlayerSpec(Protocol):
    """All that a player is made from; small and picklable."""

    def player(self) -> type[Any]:
        """The class, made with this spec alone; its name is what the process is called."""

    def units(self, requests: Sequence[GroupRequest]) -> Sequence[Unit]:
        """The requests as units of work, in their order."""

    def lost(self, unit: Any, reason: str) -> Experience:
        """What stands for a unit whose player was lost."""
