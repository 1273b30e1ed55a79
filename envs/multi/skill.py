"""A simulator of several agents whose logs are of four qualities.

Whoever acts has a skill between 0 and 1: with probability 1 - skill an agent moves at random, independent of the
others, else by a rule that aims at (1 + skill) / 2 of the way to what is best. Noise alone would make poor logs of
good decisions: the likeliest action would still be the best one.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, LogArrays, LogSpec, Truth
from refork.envs.multi.rollout import Draw, World, log_of, mean_return, play, sampling

EPISODES = 512
"""Behind a Monte Carlo truth."""
TRUTH_SEED = 1_000_003
"""No user's log has it."""
LEVELS = 8
"""Skills from 0 to that of `medium` whose episodes are the log `medium_replay`, in this order."""


def aim(skill: float) -> float:
    """How far the rule aims, as a share of the way from the worst place to the best."""
    return (1 + skill) / 2


class SkilledWorld(World[Any], Protocol):
    """A world that knows how to act in it."""

    def draw(self, skill: float) -> Draw:
        """Who acts with that skill."""

    def act(self, skill: float) -> Act | None:
        """The same as a policy over logs; None when continuous actions are drawn at random."""


class SkilledSimulator:
    """The simulator of a world (envs/log_spec.py: Simulator)."""

    behaviours = ("medium_replay", "medium", "expert", "random")

    def __init__(self, world: SkilledWorld) -> None:
        self.world = world

    @property
    def spec(self) -> LogSpec:
        return self.world.spec

    def policy(self, behaviour: str) -> Act | None:
        """None for `medium_replay`, which is several, and for what is random on continuous actions."""
        skills = self.skills(behaviour)
        return None if len(skills) > 1 else self.world.act(skills[0])

    @cached_property
    def medium_skill(self) -> float:
        """The skill whose return lies half way between those of random and expert, by bisection on common starts."""
        low, high = 0.0, 1.0
        half_way = sum(self.reference) / 2
        for _ in range(8):
            middle = (low + high) / 2
            low, high = (middle, high) if self._return(middle) < half_way else (low, middle)
        return (low + high) / 2

    def _return(self, skill: float) -> float:
        return mean_return(self.world, self.world.draw(skill), EPISODES, 0).value

    def skills(self, behaviour: str) -> tuple[float, ...]:
        """Of those who act in its log. Raises BadInput for a name that is not among `behaviours`."""
        match behaviour:
            case "random":
                return (0.0,)
            case "medium_replay":
                return tuple(np.linspace(0.0, self.medium_skill, LEVELS))
            case "medium":
                return (self.medium_skill,)
            case "expert":
                return (1.0,)
        raise BadInput(f"no behaviour {behaviour!r} of {self.spec.env}; there are: {', '.join(self.behaviours)}")

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        """The probability of a logged action is that under the skill of its episode."""
        rng, skills = np.random.default_rng(seed), self.skills(behaviour)
        counts = np.diff(np.arange(len(skills) + 1) * episodes // len(skills))
        parts = [
            play(self.world, self.world.draw(skill), int(count), rng)
            for skill, count in zip(skills, counts, strict=True)
            if count
        ]
        return log_of(self.spec, parts)

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """Monte Carlo; the same seed is the same starts for every policy."""
        return mean_return(self.world, sampling(act, self.spec.action), EPISODES, seed)

    def behaviour_truth(self, behaviour: str) -> Truth:
        """Monte Carlo: the mean of a log of other episodes."""
        rewards = self.log(behaviour, EPISODES, TRUTH_SEED).rewards
        return Truth.sampled(rewards.reshape(EPISODES, -1).sum(1, dtype=np.float64))

    @cached_property
    def reference(self) -> tuple[float, float]:
        """Returns of random and expert: 0 and 100 of a normalised score."""
        return self._return(0.0), self._return(1.0)

    def score(self, value: float) -> float:
        """100 (R - R_random) / (R_expert - R_random)"""
        worst, best = self.reference
        return 100 * (value - worst) / (best - worst)
