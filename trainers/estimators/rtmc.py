"""Rollout-Tree Monte Carlo (RTMC, arXiv 2604.11037; known here by its abstract): Q(s, a) - V(s) on merged states.

Q is the mean return of the rollouts that took a in s, V that of all that visited s, each rollout counted once (first
visit). It takes what merges by itself and wants no forks: branches get nothing and are in no mean.

This project's choices: Q is shrunk to V as if `prior` further visits had returned V, so A = n / (n + prior) (Q - V)
with n rollouts that took a in s; a state that one rollout alone met says nothing of its value, so its V is the mean of
the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit, returns
from refork.trainers.estimators.tree import zero_variance, zeros


@dataclass(frozen=True)
class RtmcOptions:
    prior: float = 1.0
    """Visits that the prior is worth; 0: none."""


def rtmc_credit(experience: TaskExperience, options: RtmcOptions) -> Credit:
    """Given how many rollouts took each action in a state, Q is unbiased and V the mean of Q over those actions."""
    judged = [(main, main.value) for main in experience.mains if main.value is not None]
    visits: dict[Hashable, list[float]] = defaultdict(list)
    for main, value in judged:
        states = {d.state_id for d in main.decisions}
        for node in (*states, *{(d.state_id, d.action) for d in main.decisions}):
            visits[node].append(value)
    group, advantages = returns(experience.mains), zeros(experience)
    for main, _ in judged:
        found = [(visits[d.state_id, d.action], visits[d.state_id]) for d in main.decisions]
        advantages[main.key] = np.array([_advantage(*pair, group, options.prior) for pair in found])
    merged = sum(len(visits[d.state_id]) > 1 for main, _ in judged for d in main.decisions)
    return Credit(advantages, {**zero_variance(experience), "merged_steps": merged})


def _advantage(taken: list[float], visited: list[float], group: np.ndarray, prior: float) -> float:
    """From the returns of rollouts that took the action, that visited the state, and of the group."""
    value = np.mean(visited) if len(visited) > 1 else group.mean()
    return float(len(taken) / (len(taken) + prior) * (np.mean(taken) - value))
