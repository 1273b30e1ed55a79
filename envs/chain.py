"""The chain: a fast and exact test bed for credit assignment.

`length` decisions with `OPTIONS` options each. About half are critical, which the agent cannot see; the return is 1
iff every critical decision is right. Each option is described by `FEATURES` numbers and the right one is the largest
along a hidden direction that all tasks share, so that a linear policy can learn it. Success is a product of
probabilities, so it is computed exactly from a policy. `START` is a linear policy that succeeds on about 9 % of tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from refork.envs.forkable import ExecutionCache, Noise, Outcome, Reward, StateMismatch, StateRef

FEATURES = 8
OPTIONS = 4
LENGTH = 20


TRUTH = np.array([0.255, -0.490, -0.319, -0.278, 0.310, -0.269, -0.579, -0.114])
START = 2.0 * (TRUTH + 0.9 * np.array([0.260, -0.722, -0.262, -0.061, 0.046, -0.001, -0.578, 0.050]))
"""The hidden direction, and the weights of the linear policy to start from; each (FEATURES,)."""


@dataclass(frozen=True)
class ChainTask:
    """One or a batch of tasks (leading axes ...)."""

    features: np.ndarray
    """(..., length, OPTIONS, FEATURES), float32."""
    critical: np.ndarray
    """(..., length), bool."""
    right: np.ndarray
    """(..., length), index of the right option."""


def make_task(task: str, length: int = LENGTH) -> ChainTask:
    """The task of that name, e.g. 'chain-17'. Raises ValueError for a name that is not 'chain-NUMBER'."""
    prefix, _, number = task.partition("-")
    if prefix != "chain" or not number.isdecimal():
        raise ValueError(f"{task!r} is no task of the chain: expected 'chain-NUMBER', e.g. 'chain-17'")
    rng = np.random.default_rng([7, int(number)])
    features = rng.standard_normal((length, OPTIONS, FEATURES)).astype(np.float32)
    return ChainTask(features, rng.random(length) < 0.5, (features @ TRUTH).argmax(-1))


def make_tasks(tasks: Sequence[str], length: int = LENGTH) -> ChainTask:
    """Those tasks stacked along a new first axis."""
    rows = [make_task(task, length) for task in tasks]
    return ChainTask(*(np.stack([getattr(r, name) for r in rows]) for name in ("features", "critical", "right")))


def exact_success(probabilities: np.ndarray, tasks: ChainTask) -> float:
    """Mean success over `tasks` of the policy with `probabilities` (..., length, OPTIONS)."""
    right = np.take_along_axis(probabilities, tasks.right[..., None], -1)[..., 0]
    return float(np.where(tasks.critical, right, 1.0).prod(-1).mean())


class ChainEnv(gym.Env[dict[str, np.ndarray], np.int64]):
    """One task of the chain as a ForkableEnv. The state is the sequence of choices made."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it per instance)
    feature_names = tuple(f"x{i}" for i in range(FEATURES))

    def __init__(self, task: str = "chain-0", *, length: int = LENGTH, cache: ExecutionCache | None = None) -> None:
        """`cache` is taken for the common signature; a step here is cheaper than any look-up."""
        self.task = make_task(task, length)
        self.length = length
        self.action_space = gym.spaces.Discrete(OPTIONS)
        self.observation_space = gym.spaces.Dict(
            features=gym.spaces.Box(-16.0, 16.0, (OPTIONS, FEATURES), np.float32),
            mask=gym.spaces.MultiBinary(OPTIONS),
        )
        self._mask = np.ones(OPTIONS, np.bool_)
        self._root = hashlib.sha256(f"{task}/{length}".encode()).hexdigest()
        self._become(())

    def _become(self, choices: Sequence[int]) -> None:
        self._choices: list[int] = []
        self._state_id = self._root
        for choice in choices:
            self._append(choice)

    def _append(self, choice: int) -> None:
        self._choices.append(choice)
        self._state_id = hashlib.sha256(f"{self._state_id}/{choice}".encode()).hexdigest()

    def _observation(self) -> dict[str, np.ndarray]:
        position = min(len(self._choices), self.length - 1)  # after the end: the last one again
        return {"features": self.task.features[position], "mask": self._mask}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self._become(())
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Raises ValueError for an action that does not exist, RuntimeError after the end."""
        if not 0 <= action < OPTIONS:
            raise ValueError(f"action {action!r} of the chain: expected 0 to {OPTIONS - 1}")
        if len(self._choices) == self.length:
            raise RuntimeError("the episode has ended: call reset or restore")
        self._append(int(action))
        ended = len(self._choices) == self.length
        return self._observation(), self._value() if ended else 0.0, ended, False, {}

    def _value(self) -> float:
        right = np.equal(self._choices, self.task.right[: len(self._choices)])
        complete = len(self._choices) == self.length
        return float(complete and bool((right | ~self.task.critical[: len(right)]).all()))

    @property
    def state_id(self) -> str:
        return self._state_id

    def snapshot(self) -> StateRef:
        return StateRef(self._state_id, {"choices": tuple(self._choices)})

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> dict[str, np.ndarray]:
        """The chain has no randomness of its own, so `noise` makes no difference."""
        self._become(_choices(ref.payload))
        if self._state_id != ref.state_id:
            raise StateMismatch(
                f"choices {self._choices} lead to {self._state_id[:12]}, the reference names {ref.state_id[:12]}"
            )
        return self._observation()

    def grade(self) -> Outcome:
        return Reward(self._value())

    def close(self) -> None:
        """Nothing is held."""


def _choices(payload: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(int(c) for c in payload["choices"])
