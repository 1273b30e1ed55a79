"""What policies are worth in the sepsis model: exact, by propagating all 1,440 states over the horizon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce

import numpy as np
from refork.envs.clinical.sepsis_scm_rules import (
    ACTIONS,
    HORIZON,
    SIGNS,
    STATES,
    TREATED,
    flags_after,
    rewards,
    rules,
    start,
)

HALF = SIGNS * TREATED
"""States with one value of diabetes, which never changes."""
DISCOUNT = 0.99
"""Under which the published optimal policy is optimal, when there is no horizon."""


@dataclass(frozen=True)
class ExactModel:
    """The rules as probabilities between states. Policies are (1440, 8), in the numbering of `sepsis_scm_rules`."""

    signs: np.ndarray
    """(2, 8, 8, 90, 90): diabetes, flags, action, vital signs, next vital signs."""
    start: np.ndarray
    """(1440,)"""
    rewards: np.ndarray
    """(1440,): of entering a state."""

    @property
    def ends(self) -> np.ndarray:
        """(1440,), bool: death or discharge."""
        return self.rewards != 0

    def steps(self, policy: np.ndarray) -> np.ndarray:
        """(2, 720, 720): from one state to the next under `policy`, for each value of diabetes; 0 after an end."""
        chosen = policy.reshape(2, SIGNS, TREATED, ACTIONS)
        moved = np.einsum("difa,dfaij->difja", chosen, self.signs)
        moved = moved[..., np.argsort(flags_after(np.arange(ACTIONS)))]  # by action -> by the flags that it leaves
        moved = moved.reshape(2, HALF, HALF)
        moved[self.ends.reshape(2, HALF)] = 0
        return moved

    def values(self, policy: np.ndarray, gamma: float = 1.0, horizon: int = HORIZON) -> np.ndarray:
        """(1440,): expected return of `horizon` steps from each state."""
        moved, reward = self.steps(policy), self.rewards.reshape(2, HALF, 1)
        values = np.zeros_like(reward)
        for _ in range(horizon):
            values = moved @ (reward + gamma * values)
        return values.reshape(STATES)

    def value(self, policy: np.ndarray, gamma: float = 1.0, horizon: int = HORIZON) -> float:
        """Expected return of `horizon` steps from the start."""
        return float(self.start @ self.values(policy, gamma, horizon))

    def visits(self, policy: np.ndarray, horizon: int = HORIZON) -> np.ndarray:
        """(horizon, 1440): chance to be in a state, alive and in treatment, when each action is chosen."""
        moved, here = self.steps(policy), self.start.reshape(2, 1, HALF)
        going = ~self.ends.reshape(2, 1, HALF)
        found = []
        for _ in range(horizon):
            found.append(here.reshape(STATES))
            here = (here @ moved) * going
        return np.stack(found)

    def action_values(self, values: np.ndarray, gamma: float = 1.0) -> np.ndarray:
        """(1440,) values of states -> (1440, 8): of each action in each state."""
        worth = (self.rewards + gamma * np.where(self.ends, 0, values)).reshape(2, SIGNS, TREATED)
        after = worth[:, :, flags_after(np.arange(ACTIONS))].transpose(0, 2, 1)  # (2, action, next signs)
        found = (self.signs @ after[:, None, :, :, None])[..., 0]  # (2, flags, action, signs)
        return np.where(self.ends[:, None], 0, found.transpose(0, 3, 1, 2).reshape(STATES, ACTIONS))

    def best_policy(self, gamma: float = DISCOUNT) -> np.ndarray:
        """(1440, 8): best without a horizon, by policy iteration."""
        policy, reward = np.full((STATES, ACTIONS), 1 / ACTIONS), self.rewards.reshape(2, HALF, 1)
        while True:
            moved = self.steps(policy)
            values = np.linalg.solve(np.eye(HALF) - gamma * moved, moved @ reward).reshape(STATES)
            better = np.eye(ACTIONS)[self.action_values(values, gamma).round(11).argmax(-1)]
            if (better == policy).all():
                return policy
            policy = better

    def best_value(self, horizon: int = HORIZON, gamma: float = 1.0) -> float:
        """Of the best policy that sees the full state and counts the steps: what no other can pass."""
        values = np.zeros(STATES)
        for _ in range(horizon):
            values = self.action_values(values, gamma).max(-1)
        return float(self.start @ values)


@cache
def exact_model(published_glucose: bool = False) -> ExactModel:
    """One for each version of the rules."""
    tables = rules(published_glucose)
    signs = np.stack(
        [reduce(np.kron, [table[where] for table in tables]) for where in np.ndindex(2, TREATED, ACTIONS)]
    ).reshape(2, TREATED, ACTIONS, SIGNS, SIGNS)
    ordered = [np.moveaxis(start(), 1, 2), np.broadcast_to(rewards().T, (2, SIGNS, TREATED))]
    return ExactModel(signs, *(part.reshape(STATES) for part in ordered))


@cache
def best_policy(published_glucose: bool = False) -> np.ndarray:
    """(1440, 8): the published optimal policy: best under DISCOUNT without a horizon."""
    return exact_model(published_glucose).best_policy()
