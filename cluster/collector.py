"""Collects experience in this process, and says what every collector does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from refork.cluster.playing import Player, PlayerSpec
from refork.cluster.resources import PRIVATE, Need
from refork.replay.player import GroupRequest

Sink = Callable[[Any], None]
"""Gets every experience as soon as it has been played, before the batch is complete: the progress display."""


class GroupCollector(Protocol):
    """What the loop (`trainers/loop.py: Collector`) and evaluation ask for."""

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        how: Any = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[Any]:
        """One experience per unit of work (`cluster/playing.py`), in the order of the requests.

        `baseline`: play that policy of the environment instead of the weights. `record`: hand groups to the sinks.
        """

    def close(self) -> None:
        """Leave nothing behind."""


class LocalCollector:
    """Plays units one after the other in this process."""

    def __init__(self, spec: PlayerSpec, sinks: Sequence[Sink] = (), share: slice = slice(None)) -> None:
        """`share`: which of the units it plays; all, unless others play the rest."""
        self._spec, self._sinks, self._share = spec, tuple(sinks), share
        self._player: Player = spec.player()(spec)

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        how: Any = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[Any]:
        played: list[Any] = []
        for unit in self._spec.units(requests)[self._share]:
            played.append(self._player.play(unit, weights, version, how, baseline))
            for sink in self._sinks if record else ():
                sink(played[-1])
        return played

    def close(self) -> None:
        self._player.close()


def open_collector(
    spec: PlayerSpec, need: Need | None = None, sinks: Sequence[Sink] = (), address: str = PRIVATE
) -> GroupCollector:
    """In this process without actors, else on those that are needed (Ray is imported only then)."""
    if need is None or need.actors == 0:
        return LocalCollector(spec, sinks)
    from refork.cluster.actors import RayCollector
    from refork.cluster.running_ray import open_ray

    return RayCollector(spec, need, open_ray(address, need), sinks)
