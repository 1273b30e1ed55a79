"""Policies that `refork evaluate` judges on a log: the trained ones, naive ones, the simulator's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from refork.agents.log_policy import LogPolicy
from refork.cluster.family import Contest
from refork.cluster.log_source import LogSource
from refork.envs.log_spec import Act, ActionSpec
from refork.trainers.behaviour_model import clone


@dataclass(frozen=True)
class LogContestant:
    """One policy."""

    name: str
    seed: int | None
    """Of a trained one."""
    act: Act


def log_contestants(source: LogSource, seeds: int, contest: Contest) -> Iterator[LogContestant]:
    """Every trained seed; with `baselines` behaviour cloning, never-treat, random and what the simulator has."""
    trained = LogPolicy(source.spec, contest.trained, seeds)
    for seed in range(seeds):
        yield LogContestant("trained", seed, trained.member(seed))
    if not contest.baselines:
        return
    yield LogContestant("BC", None, clone(source.log.subset(source.splits["train"])))
    own: dict[str, Act] = {}
    if source.simulator is not None:
        known = {name: source.simulator.policy(name) for name in source.simulator.behaviours}
        own = {name.replace("_", "-"): act for name, act in known.items() if act is not None}
    naive = {"never-treat": never_treat(source.spec.action), "random": at_random(source.spec.action)}
    for name, act in {**naive, **own}.items():
        yield LogContestant(name, None, act)


def never_treat(action: ActionSpec) -> Act:
    """Action 0 of every decision maker, or the least allowed one; of continuous doses the one nearest to 0."""

    def act(observations: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        shape = (len(observations), action.agents, action.width)
        if action.kind == "continuous":
            return np.broadcast_to(np.clip(0.0, action.low, action.high).astype(np.float32), shape)
        first = np.zeros(shape[:2], np.int64) if allowed is None else allowed.argmax(-1)
        return np.eye(action.width)[first]

    return act


def at_random(action: ActionSpec) -> Act:
    """All that is allowed equally likely; of continuous actions one drawn anew for every row."""

    def act(observations: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        shape = (len(observations), action.agents, action.width)
        if action.kind == "continuous":
            drawn = np.random.default_rng(0).random(shape, np.float32)
            low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
            return low + drawn * (high - low)
        legal = np.broadcast_to(np.arange(action.width) < np.array(action.sizes)[:, None], shape)
        legal = legal if allowed is None else legal & allowed
        return legal / legal.sum(-1, keepdims=True)

    return act
