"""Plays many episodes of a world of several agents in step, and writes what happened as a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from refork.envs.log_spec import Act, ActionSpec, LogArrays, LogSpec, Truth

State = TypeVar("State")
Draw = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]
"""Observations (B, ...) -> joint actions (B, n) or (B, n, dimensions), and the probability or density of each, (B,)."""


class World(Protocol[State]):
    """B episodes at once, all of the same length; moves have no randomness of their own."""

    @property
    def spec(self) -> LogSpec:
        """`horizon` is the length of every episode."""

    def begin(self, episodes: int, rng: np.random.Generator) -> State: ...

    def observe(self, state: State) -> np.ndarray:
        """(B, size) or (B, n, size), float32."""

    def step(self, state: State, actions: np.ndarray) -> tuple[State, np.ndarray]:
        """Joint actions (B, n) or (B, n, dimensions) -> what follows, and the rewards of the team (B,)."""


@dataclass(frozen=True)
class Played:
    """E episodes of T steps."""

    observations: np.ndarray
    """(E, T + 1, ...)"""
    actions: np.ndarray
    """(E, T, n) or (E, T, n, dimensions)"""
    rewards: np.ndarray
    """(E, T), float64"""
    behaviour: np.ndarray
    """(E, T): probability or density of the joint action."""


def play(world: World[State], draw: Draw, episodes: int, rng: np.random.Generator) -> Played:
    """Episodes from the start distribution to the horizon."""
    state = world.begin(episodes, rng)
    seen = [world.observe(state)]
    steps: list[tuple[np.ndarray, ...]] = []
    for _ in range(world.spec.horizon):
        chosen, probability = draw(seen[-1], rng)
        state, reward = world.step(state, chosen)
        seen.append(world.observe(state))
        steps.append((chosen, reward, probability))
    return Played(np.stack(seen, 1), *(np.stack(column, 1) for column in zip(*steps, strict=True)))


def sampling(act: Act, spec: ActionSpec) -> Draw:
    """Acts as `act` says: by its probabilities, or for continuous actions exactly (density NaN)."""

    def draw(observations: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        found = act(observations, None)
        if spec.kind == "continuous":
            return found, np.full(len(found), np.nan)
        return sample(found, rng)

    return draw


def sample(probabilities: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(B, n, width) -> an action of each decision maker (B, n), and the probability of the joint one (B,)."""
    cumulative = np.cumsum(probabilities, -1)
    uniform = rng.random(cumulative.shape[:-1]) * cumulative[..., -1]
    chosen = (uniform[..., None] >= cumulative[..., :-1]).sum(-1)
    # (B, n, width) -> (B, n) -> (B,)
    return chosen, np.take_along_axis(probabilities, chosen[..., None], -1)[..., 0].prod(-1)


def log_of(spec: LogSpec, parts: Sequence[Played]) -> LogArrays:
    """The episodes of all parts, each of a patient of its own, cut at the horizon."""
    seen, actions, rewards, behaviour = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("observations", "actions", "rewards", "behaviour")
    )
    episodes, steps = rewards.shape
    kind = np.int64 if spec.action.kind == "discrete" else np.float32
    return LogArrays(
        spec,
        observations=seen.reshape(-1, *seen.shape[2:]),
        actions=actions.reshape(-1, *actions.shape[2:]).astype(kind),
        rewards=rewards.ravel().astype(np.float32),
        terminated=np.zeros(rewards.size, bool),
        truncated=np.arange(rewards.size) % steps == steps - 1,
        starts=np.arange(episodes + 1) * steps,
        patients=np.arange(episodes),
        behaviour=behaviour.ravel().astype(np.float32),
        dt=np.ones(rewards.size, np.float32),
    )


def mean_return(world: World[State], draw: Draw, episodes: int, seed: int) -> Truth:
    """Expected undiscounted return from the start distribution, by Monte Carlo: 95 % interval of the mean."""
    return Truth.sampled(play(world, draw, episodes, np.random.default_rng(seed)).rewards.sum(1))
