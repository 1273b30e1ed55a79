"""What no policy of a game can exceed: the joint program relaxed or whole, and the best reply to fixed moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.joint_program import joint_program
from refork.envs.graph_game.program import Solved

BOTH = (1.0, 1.0)
"""Weights of the two operators' payoffs: welfare."""


@dataclass(frozen=True)
class MilpBound:
    """Of the welfare."""

    bound: float
    """No policy earns more."""
    value: float
    """Of the best plan found, its flows chosen freely; -inf where none was found in time."""
    moves: np.ndarray
    """(T, 2): the plan; empty where none was found."""


@dataclass(frozen=True)
class BestResponse:
    """Of one operator to the other's fixed moves."""

    value_bound: float
    """No reply earns more, whatever the flows: less what is earned, this bounds the regret from above."""
    moves: np.ndarray
    """(T,): the reply of the program; replayed in the game it bounds the regret from below."""


def upper_bound(instance: Instance, demand: np.ndarray | None = None) -> float:
    """Welfare that no policy exceeds: the relaxed program. `demand` (T, N), as drawn, replaces the instance's."""
    return joint_program(instance, demand, BOTH).program.relaxed().bound


def milp_bound(instance: Instance, time_limit_s: float = 60.0, demand: np.ndarray | None = None) -> MilpBound:
    """The same with whole levels, after at most that long; closes up to about ten sites."""
    model = joint_program(instance, demand, BOTH)
    solved = model.program.whole_numbered(time_limit_s)
    moves = [_moves(solved, level) for level in (model.site_level, model.node_level)] if len(solved.point) else []
    return MilpBound(solved.bound, solved.value, np.stack(moves, 1) if moves else np.zeros((0, 2), np.int64))


def best_response(
    instance: Instance,
    operator: int,
    other_moves: np.ndarray,
    time_limit_s: float = 60.0,
    demand: np.ndarray | None = None,
) -> BestResponse:
    """What `operator` (0 demand, 1 supply) could earn itself at most while the other plays `other_moves` (T,)."""
    weights = (1.0, 0.0) if operator == 0 else (0.0, 1.0)
    count = instance.nodes if operator == 0 else instance.sites
    other = np.cumsum(np.asarray(other_moves)[:, None] == np.arange(count), 0)
    model = joint_program(instance, demand, weights, fixed=(None, other) if operator == 0 else (other, None))
    solved = model.program.whole_numbered(time_limit_s)
    own = model.site_level if operator == 0 else model.node_level
    moves = _moves(solved, own) if len(solved.point) else np.full(instance.horizon, own.shape[1])
    return BestResponse(solved.bound, moves)


def _moves(solved: Solved, level: np.ndarray) -> np.ndarray:
    """(T,): which node is raised in each round, from level variables (T, n); n: none."""
    built = np.diff(np.rint(solved.point[level]), axis=0, prepend=0)
    return np.where(built.any(1), built.argmax(1), level.shape[1])
