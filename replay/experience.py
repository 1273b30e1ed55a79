"""What every kind of experience can say of itself, and what keeps it: all that the loop asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from refork.envs.forkable import Outcome


class Experience(Protocol):
    """What one unit of rollout work left: a task's group with its forks, or a batch of games."""

    @property
    def outcomes(self) -> Sequence[tuple[str, Outcome]]:
        """Task and outcome of every rollout that was asked for; branches are left out."""


class ExperienceStore(Protocol):
    """Keeps the experience of a run, update by update."""

    folder: Path

    def write(self, update: int, experience: Sequence[Any]) -> Path:
        """Keep what update number `update` collected, replacing what was there. Raises OSError (disk full)."""

    def drop_from(self, update: int) -> None:
        """Remove update number `update` and later ones: a resumed run plays them again."""
