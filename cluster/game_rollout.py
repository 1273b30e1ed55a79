"""Plays batches of games: the plain class that is an actor on a cluster and an object in one process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from refork.agents.registry import make_policy
from refork.cluster.game_tasks import GameSource
from refork.envs.forkable import BadInput
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.replay.game_pack import GamePack, LostGames, pack
from refork.replay.game_player import Chooser, Draws, Greedy, Ruled, Sampled, draw, play
from refork.replay.games import PlayConfig, PlayedGames
from refork.replay.player import GroupRequest
from refork.replay.seeding import generator


@dataclass(frozen=True)
class GameSpec:
    """All that a player of games is made from; small and picklable."""

    source: GameSource
    agent: str
    """Kind of agent, as in `agents/registry.py`."""

    def player(self) -> type[GamePlayer]:
        return GamePlayer

    def units(self, requests: Sequence[GroupRequest]) -> list[GamePack]:
        return pack(requests, self.source.size, self.source.options.batch)

    def lost(self, unit: GamePack, reason: str) -> LostGames:
        return LostGames(unit.tasks, reason)


class GamePlayer:
    """Owns instances and a policy of some version. One thread."""

    def __init__(self, spec: GameSpec) -> None:
        torch.set_num_threads(1)
        self._spec, self._source = spec, spec.source
        self._policy: tuple[int, Any] | None = None

    def play(
        self,
        unit: GamePack,
        weights: Mapping[str, np.ndarray],
        version: int,
        how: PlayConfig | None = None,
        baseline: str = "",
    ) -> PlayedGames:
        """The games of one pack: by the heuristic `baseline` or that of `how`, else by the policy.

        Greedy requests search at every round where `how` asks for candidates.
        """
        how = how or PlayConfig()
        behaviour = baseline or how.behaviour
        draws = draw(unit, self._source.instance(unit.tasks[0]).horizon)
        games = self._source.game(unit.tasks, draws.noise_seeds)
        if behaviour != "policy":
            chooser: Chooser = Ruled(_rule(behaviour, unit))
        else:
            chooser = _by_policy(self._acting(weights, version), unit, draws, how)
        return play(games, unit, chooser, draws, version, behaviour)

    def pid(self) -> int:
        """The process this one lives in."""
        return os.getpid()

    def close(self) -> None:
        """Nothing is held."""

    def _acting(self, weights: Mapping[str, np.ndarray], version: int) -> Any:
        if self._policy is None or self._policy[0] != version:
            self._policy = (version, make_policy(self._spec.agent, weights))
        return self._policy[1]


def _by_policy(policy: Any, unit: GamePack, draws: Draws, how: PlayConfig) -> Chooser:
    if unit.requests[0].greedy:
        return Greedy(policy, draws, how.improve.candidates if how.improve else 0)
    return Sampled(policy, draws, how.improve)


def _rule(name: str, unit: GamePack) -> Any:
    """The moves of a heuristic; what it draws depends on the pack. Raises BadInput naming those there are."""
    if name not in HEURISTICS:
        raise BadInput(f"no heuristic {name!r}; there are: {', '.join(HEURISTICS)}")
    first = unit.requests[0]
    seed = int(generator(first.seed, f"rule/{first.task}", first.episode).integers(2**31))
    return HEURISTICS[name](seed).moves
