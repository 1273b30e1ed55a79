"""Requests for games, packed into batches that are played in step, and what stands for a batch that was lost.

The packs of given requests are always the same, so results do not depend on how many play them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from refork.envs.forkable import InfraError, Outcome
from refork.replay.player import GroupRequest


@dataclass(frozen=True)
class GamePack:
    """Requests of one episode whose games are one batch."""

    requests: tuple[GroupRequest, ...]

    @property
    def task(self) -> str:
        """For messages."""
        return f"{self.requests[0].task} and {len(self.tasks) - 1} more games"

    @property
    def tasks(self) -> tuple[str, ...]:
        """(B) instance of each game."""
        return tuple(r.task for r in self.requests for _ in range(r.size))

    @property
    def attempts(self) -> tuple[int, ...]:
        """(B) number of each game among those of its request."""
        return tuple(attempt for r in self.requests for attempt in range(r.size))


@dataclass(frozen=True)
class LostGames:
    """What stands for the games of a pack whose player was lost."""

    tasks: tuple[str, ...]
    reason: str

    @property
    def outcomes(self) -> list[tuple[str, Outcome]]:
        return [(task, InfraError(self.reason)) for task in self.tasks]


def pack(requests: Sequence[GroupRequest], size: Callable[[str], int], limit: int) -> list[GamePack]:
    """Batches of at most `limit` games (more where one request alone asks for more), of one episode each.

    `size` of a task: games of like size go together, so that little is padded.
    """
    packs: list[list[GroupRequest]] = []
    for request in sorted(requests, key=lambda r: (r.episode, size(r.task))):
        last = packs[-1] if packs else []
        if not last or last[0].episode != request.episode or sum(r.size for r in last) + request.size > limit:
            packs.append([])
        packs[-1].append(request)
    return [GamePack(tuple(own)) for own in packs]
