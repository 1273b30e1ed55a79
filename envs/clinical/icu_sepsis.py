"""ICU-Sepsis (arXiv 2406.05646): 716 states, 25 actions, from the tables of the package `icu-sepsis` 2.0.1.

The tables are read without importing the package (which imports the old gym). A policy is worth exactly what a linear
solve says: the useful range of values is .093 wide, too narrow for a few hundred sampled episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogArrays, LogSpec, ObservationSpec, Truth

DEATH, SURVIVAL, ABSORBED = 713, 714, 715
ACTIONS = 25


@dataclass(frozen=True)
class Tables:
    """What the package ships."""

    transitions: np.ndarray
    """(716, 25, 716)"""
    start: np.ndarray
    """(716,)"""
    expert: np.ndarray
    """(716, 25): the clinicians' policy, cleaned of rare actions."""
    allowed: np.ndarray
    """(716, 25), bool: admissible actions; others lead where the admissible ones lead on average."""
    features: np.ndarray
    """(716, 47): centres of the clusters that the states are."""
    sofa: np.ndarray
    """(716,)"""


@cache
def tables() -> Tables:
    """Raises BadInput when the package is not installed."""
    try:
        listed = {path.name: path.locate() for path in files("icu-sepsis") or ()}
    except PackageNotFoundError:
        raise BadInput("refork/IcuSepsis-v0 needs the package icu-sepsis: pip install 'refork[clinical]'") from None
    data = np.load(str(listed["dynamics.npz"]))
    lines = Path(str(listed["admissible_actions.txt"])).read_text().splitlines()[1:]
    allowed = np.zeros((len(data["d_0"]), ACTIONS), bool)
    for state, line in enumerate(lines):
        allowed[state, [int(a) for a in line.split()]] = True
    return Tables(
        data["tx_mat"],
        data["d_0"],
        data["expert_policy"],
        allowed,
        data["state_cluster_centers"].astype(np.float32),
        data["sofa_scores"],
    )


def exact_value(policy: np.ndarray, gamma: float = 1.0) -> float:
    """Value of `policy` (716, 25): the chance to survive, discounted by gamma a step; a linear solve."""
    t = tables()
    step = np.einsum("sa,sap->sp", policy, t.transitions)[:DEATH]
    values = np.linalg.solve(np.eye(DEATH) - gamma * step[:, :DEATH], step[:, SURVIVAL])
    return float(t.start[:DEATH] @ values)


class IcuSepsis:
    """The simulator (envs/log_spec.py): a log shows which of the states it is, and carries their 47 features."""

    behaviours = ("expert", "random", "optimal")

    def __init__(self) -> None:
        names = tuple(f"f{k}" for k in range(tables().features.shape[1]))
        self.spec = LogSpec(
            "refork/IcuSepsis-v0",
            ObservationSpec("states", len(tables().start), names),
            ActionSpec("discrete", (ACTIONS,), ("dose",)),
            reward="1 on survival, else 0",
            step="4 h",
        )

    def policy(self, behaviour: str) -> Act:
        table = _behaviour(behaviour)
        return lambda states, _allowed: table[states][:, None]

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        """Whole episodes, all patients in step: one look-up in a cumulative table a step."""
        t, policy = tables(), _behaviour(behaviour)
        rng = np.random.default_rng(seed)
        choices, leads = np.cumsum(policy, -1), np.cumsum(t.transitions, -1)
        states = [_draw(np.broadcast_to(np.cumsum(t.start), (episodes, len(t.start))), rng)]
        actions: list[np.ndarray] = []
        alive = [np.ones(episodes, bool)]
        while alive[-1].any():
            here, going = states[-1], alive[-1]
            chosen, following = np.zeros(episodes, np.int64), here.copy()
            chosen[going] = _draw(choices[here[going]], rng)
            following[going] = _draw(leads[here[going], chosen[going]], rng)
            actions.append(chosen)
            states.append(following)
            alive.append(following < DEATH)
        return self._arrays(np.stack(states, 1), np.stack(actions, 1), np.stack(alive[:-1], 1), policy)

    def _arrays(self, states: np.ndarray, actions: np.ndarray, going: np.ndarray, policy: np.ndarray) -> LogArrays:
        """(E, T + 1) states, (E, T) actions and whether there was a step -> contiguous."""
        lengths = going.sum(1)
        seen = np.arange(states.shape[1]) <= lengths[:, None]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        chosen, before, after = actions[going], states[:, :-1][going], states[:, 1:][going]
        ended = after >= DEATH
        return LogArrays(
            self.spec,
            observations=states[seen].astype(np.int32),
            actions=chosen[:, None],
            rewards=(after == SURVIVAL).astype(np.float32),
            terminated=ended,
            truncated=np.zeros(len(chosen), bool),
            starts=starts,
            patients=np.arange(len(states)),
            behaviour=policy[before, chosen].astype(np.float32),
            dt=np.ones(len(chosen), np.float32),
            state_features=tables().features,
        )

    def truth(self, act: Act, seed: int = 0) -> Truth:
        value = exact_value(act(np.arange(len(tables().start)), None)[:, 0])
        return Truth(value, True, value, value)


def _draw(cumulative: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(B, K) -> (B,): one index a row."""
    return (rng.random(len(cumulative))[:, None] >= cumulative[:, :-1]).sum(-1)


@cache
def _behaviour(name: str) -> np.ndarray:
    """(716, 25)"""
    t = tables()
    match name:
        case "expert":
            return np.where(t.expert.sum(-1, keepdims=True) > 0, t.expert, 1 / ACTIONS)
        case "random":
            return np.full(t.expert.shape, 1 / ACTIONS)
        case "optimal":
            return optimal_policy()
    raise BadInput(f"no behaviour {name!r} of refork/IcuSepsis-v0; there are: {', '.join(IcuSepsis.behaviours)}")


@cache
def optimal_policy() -> np.ndarray:
    """(716, 25): by policy iteration, gamma 1."""
    t = tables()
    policy = np.full(t.expert.shape, 1 / ACTIONS)
    while True:
        step = np.einsum("sa,sap->sp", policy, t.transitions)[:DEATH]
        values = np.zeros(len(t.start))
        values[:DEATH] = np.linalg.solve(np.eye(DEATH) - step[:, :DEATH], step[:, SURVIVAL])
        values[SURVIVAL] = 1.0
        better = np.eye(ACTIONS)[(t.transitions @ values).round(12).argmax(-1)]
        if (better == policy).all():
            return policy
        policy = better
