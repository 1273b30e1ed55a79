"""A game round by round, to be looked at: one that a run recorded, or one played now by its policy or a heuristic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from refork.agents.registry import make_policy
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find
from refork.cluster.family import open_family
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_family import GameFamily
from refork.cluster.run_folder import saved_job
from refork.cluster.training import build_trainer
from refork.envs.forkable import BadInput
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.envs.graph_game.instance import Instance
from refork.replay.fork_improve import act, greedy
from refork.replay.game_store import GameStore, StoredGame
from refork.trainers.config import JobConfig

RECORDED, TRAINED = "recorded", "trained"


@dataclass(frozen=True)
class Film:
    """One game; T rounds."""

    instance: Instance
    by: str
    site_level: np.ndarray
    """(T, N), after each round."""
    node_level: np.ndarray
    """(T, M)"""
    served: np.ndarray
    """(T, N)"""
    through: np.ndarray
    """(T, M)"""
    own: np.ndarray
    """(T, 2): payoffs."""
    bound: float
    """Of the welfare."""

    @property
    def fraction(self) -> float:
        return float(self.own.sum() / self.bound)


def film(run: Path, task: str, by: str, episode: int | None = None, attempt: int = 0) -> Film:
    """`by`: recorded (the newest that fits), trained (greedily, by the newest checkpoint), or a heuristic's name.

    Raises BadInput for what is not there.
    """
    job = JobConfig.model_validate(saved_job(run))
    family = open_family(job)
    if not isinstance(family, GameFamily):
        raise BadInput(f"{run}: {job.env.id} is no graph game; `python -m refork.scripts.draw_tree` draws its rollouts")
    source = family.source
    stored = GameStore(run / "trajectories").find(task, episode, attempt) if by == RECORDED else None
    game = source.game([task], [stored.noise_seed if stored else 0])
    frames = [_round(game, moves) for moves in _moves(game, family, job, run, by, stored)]
    demand = game.demand[:, 0] if source.options.noise else None
    bound = BoundCache().upper(source.instance(task), demand)
    site, node, served, through, own = (np.stack(column) for column in zip(*frames, strict=True))
    return Film(source.instance(task), by, site, node, served, through, own, bound)


def _moves(
    game: Game, family: GameFamily, job: JobConfig, run: Path, by: str, stored: StoredGame | None
) -> Iterator[np.ndarray]:
    """Moves (1, 2) of each round, chosen as the game stands."""
    if stored is not None:
        passes = [game.batch.sites, game.batch.nodes]
        yield from np.where(stored.actions == stored.pass_moves, passes, stored.actions)[:, None]
    elif by == TRAINED:
        trainer = build_trainer(job, family.feature_names)
        trainer.load_state_dict(read(find(run)).state["trainer"])
        policy = make_policy(job.agent.kind, trainer.weights())
        while not game.ended:
            yield greedy(act(policy, game))
    elif by in HEURISTICS:
        heuristic = HEURISTICS[by](0)
        while not game.ended:
            yield heuristic.moves(game)
    else:
        raise BadInput(f"--by {by}: there are: {', '.join((RECORDED, TRAINED, *HEURISTICS))}")


def _round(game: Game, moves: np.ndarray) -> Sequence[np.ndarray]:
    paid = game.step(moves)
    state = game.state
    return state.site_level[0], state.node_level[0], state.served[0], state.through[0], paid.own[0]
