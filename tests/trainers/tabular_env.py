"""A random tabular MDP with exact values, as a ForkableEnv and the policy that acts in it."""

from typing import Any

import numpy as np
from refork.envs.forkable import Noise, Obs, Outcome, Reward, StateRef

HORIZON, STATES, ACTIONS = 3, 3, 3


class TabularEnv:
    """Stochastic moves, return 0 or 1 with a chance that the last state sets."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        self.moves = rng.dirichlet(np.ones(STATES), (HORIZON, STATES, ACTIONS))
        self.chance = np.array([0.05, 0.5, 0.95])
        self.policy = rng.dirichlet(np.full(ACTIONS, 3.0), (HORIZON, STATES))
        self._rng = np.random.default_rng(6)  # goes on over resets: fresh noise

    def exact_q(self) -> np.ndarray:
        """Q under the policy, (HORIZON, STATES, ACTIONS)."""
        value, found = self.chance, np.zeros((HORIZON, STATES, ACTIONS))
        for t in reversed(range(HORIZON)):
            found[t] = self.moves[t] @ value
            value = (self.policy[t] * found[t]).sum(-1)
        return found

    def exact_values(self) -> np.ndarray:
        """V, (HORIZON, STATES)."""
        return (self.policy * self.exact_q()).sum(-1)

    def exact_advantages(self) -> np.ndarray:
        """Q - V, (HORIZON, STATES, ACTIONS)."""
        return self.exact_q() - self.exact_values()[..., None]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        self.time, self.state = 0, 0
        return (0, 0), {}

    def step(self, action: int) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        moves = self.moves[self.time, self.state, action]
        self.state = int(moves.cumsum().searchsorted(self._rng.random()).clip(max=STATES - 1))
        self.time += 1
        return (self.time, self.state), 0.0, self.time == HORIZON, False, {}

    @property
    def state_id(self) -> str:
        return f"{self.time}/{self.state}"

    def snapshot(self) -> StateRef:
        return StateRef(self.state_id, {"at": (self.time, self.state)})

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Obs:
        self.time, self.state = ref.payload["at"]
        return self.time, self.state

    def grade(self) -> Outcome:
        return Reward(float(self._rng.random() < self.chance[self.state]))

    def close(self) -> None:
        pass

    def probabilities(self, observation: Obs) -> np.ndarray:
        return self.policy[observation]
