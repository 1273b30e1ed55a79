"""Plays one trajectory: from the start, or from a fork with a given first action."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from refork.envs.forkable import ForkableEnv, InfraError, InfraFailure, Noise, Obs, Outcome, StateMismatch, StateRef
from refork.replay.policy import Policy, entropy, greedy, sample
from refork.replay.seeding import generator
from refork.replay.trajectory import Decision, Origin, Trajectory


@dataclass(frozen=True)
class GroupRequest:
    """A group to be played: `size` main rollouts of `task`. Everything random in it comes from `seed` and the key."""

    task: str
    episode: int
    seed: int
    """The run's seed."""
    env_seed: int
    """What the environment is reset with."""
    size: int = 4
    greedy: bool = False
    """Take the most probable action instead of sampling (evaluation)."""


class Player:
    """Plays one trajectory and keeps what has happened, so that a failure in mid-episode loses nothing."""

    def __init__(self, env: ForkableEnv, policy: Policy, request: GroupRequest, attempt: int) -> None:
        self.env, self.policy, self.request, self.attempt = env, policy, request, attempt
        self.rng = generator(request.seed, f"rollout/{request.task}", request.episode, attempt)
        self.decisions: list[Decision] = []
        self.executed = 0
        self.started = False
        self.info: dict[str, Any] = {}

    def main(self) -> Trajectory:
        return self._guard(self._from_start, None)

    def branch(self, ref: StateRef, action: int, origin: Origin, noise: Noise) -> Trajectory:
        return self._guard(lambda: self._from_fork(ref, action, noise), origin)

    def _guard(self, play: Callable[[], Outcome], origin: Origin | None) -> Trajectory:
        begun = time.perf_counter()
        try:
            outcome: Outcome = play()
        except InfraFailure as failure:
            outcome = InfraError(str(failure))
        except StateMismatch as mismatch:
            outcome = InfraError(f"state mismatch: {mismatch}")
            self.info["state_mismatch"] = True
        return Trajectory(
            self.request.task,
            self.request.episode,
            self.attempt,
            tuple(self.decisions),
            outcome,
            origin,
            self.executed,
            time.perf_counter() - begun,
            self.info,
        )

    def _from_start(self) -> Outcome:
        observation, _ = self.env.reset(seed=self.request.env_seed)
        self.started = True
        return self._play_on(observation)

    def _from_fork(self, ref: StateRef, action: int, noise: Noise) -> Outcome:
        observation = self.env.restore(ref, noise=noise)
        self.started = True
        after, ended = self._step(observation, action, self.policy.probabilities(observation))
        return self.env.grade() if ended else self._play_on(after)

    def _play_on(self, observation: Obs) -> Outcome:
        ended = False
        while not ended:
            probabilities = self.policy.probabilities(observation)
            action = greedy(probabilities) if self.request.greedy else sample(probabilities, self.rng)
            observation, ended = self._step(observation, action, probabilities)
        return self.env.grade()

    def _step(self, observation: Obs, action: int, probabilities: np.ndarray) -> tuple[Obs, bool]:
        probability = float(probabilities[action])
        ref = self.env.snapshot()
        after, _, terminated, truncated, info = self.env.step(action)
        log_prob = float(np.log(probability)) if probability > 0 else float("-inf")
        self.decisions.append(
            Decision(ref.state_id, observation, action, log_prob, probability, entropy(probabilities), ref)
        )
        spent = info.get("spent")
        self.executed += spent is None or spent.executed
        return after, terminated or truncated


def play_branch(
    env: ForkableEnv,
    policy: Policy,
    request: GroupRequest,
    attempt: int,
    ref: StateRef,
    action: int,
    origin: Origin,
    noise: Noise = "fresh",
) -> Trajectory:
    """Go back to `ref`, take `action` there, and play on under `policy` to the end."""
    return Player(env, policy, request, attempt).branch(ref, action, origin, noise)
