"""What a learner finds in the sepsis model that takes what the log shows for the whole state, given unlimited data.

The gap between its value at strength 1 and at a higher one is what confounding costs a method that ignores it, free
of any noise of sampling or training.
"""

from __future__ import annotations

import numpy as np
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.clinical.sepsis_scm_exact import DISCOUNT, HALF
from refork.envs.clinical.sepsis_scm_rules import ACTIONS
from scipy.sparse import csr_array


def naive_policy(simulator: SepsisScm, behaviour: str, gamma: float = DISCOUNT) -> np.ndarray:
    """(observed states, 8): best in the process that the log of `behaviour` seems to come from, without a horizon.

    That process is counted over all steps of unlimited episodes. Actions that the behaviour never takes in a state
    are not taken there either; in states that are never visited the first action is.
    """
    steps, rewards, tried = _counted(simulator, simulator.table(behaviour))
    states = len(tried)
    policy = np.eye(ACTIONS)[np.where(tried, rewards, -np.inf).argmax(-1)]
    while True:
        moved = np.einsum("oa,aop->op", policy, steps)
        values = np.linalg.solve(np.eye(states) - gamma * moved, (policy * rewards).sum(-1))
        worth = np.where(tried, rewards + gamma * (steps @ values).T, -np.inf).round(11)
        better = np.eye(ACTIONS)[np.where(tried.any(-1), worth.argmax(-1), 0)]
        if (better == policy).all():
            return policy
        policy = better


def _counted(simulator: SepsisScm, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances to go on to a state (8, O, O), mean rewards (O, 8), and which actions are ever taken (O, 8), bool."""
    model, states = simulator.model, len(simulator.features)
    weights = model.visits(table).sum(0)[:, None] * table
    halves = [csr_array((np.ones(HALF), (np.arange(HALF), part)), (HALF, states)) for part in _parts(simulator.shown)]
    taken = np.zeros((states, ACTIONS))
    np.add.at(taken, simulator.shown, weights)
    flows, earned = np.zeros((ACTIONS, states, states)), np.zeros((states, ACTIONS))
    for action in range(ACTIONS):
        alone = weights * (np.arange(ACTIONS) == action)
        for moved, seen, reward in zip(model.steps(alone), halves, _parts(model.rewards), strict=True):
            earned[:, action] += seen.T @ (moved @ reward)
            flows[action] += (seen.T @ (moved * (reward == 0))) @ seen
    total = np.where(taken > 0, taken, 1)
    return flows / total.T[:, :, None], earned / total, taken > 1e-12


def _parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without and with diabetes."""
    return values[:HALF], values[HALF:]
