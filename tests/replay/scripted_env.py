"""A small environment whose failures are scripted, for tests of the collector."""

from typing import Any

import numpy as np
from refork.envs.forkable import InfraFailure, Noise, Obs, Outcome, Reward, Spent, StateMismatch, StateRef, Timeout

LENGTH = 4


class UniformPolicy:
    """Equal chances for `options` actions, or those given."""

    def __init__(self, *probabilities: float) -> None:
        self._p = np.array(probabilities or (0.5, 0.5))

    def probabilities(self, observation: Obs) -> np.ndarray:
        return self._p.copy()


class ScriptedEnv:
    """Four binary choices; returns 1 iff the first is 1. `fail` maps a place ('reset', 'step', 'restore', 'grade') to
    how many calls pass before it raises, once."""

    def __init__(self, fail: dict[str, int] | None = None, *, always: bool = False) -> None:
        self.fail = dict(fail or {})
        self.always = always
        self.choices: tuple[int, ...] = ()
        self.calls: dict[str, int] = {}
        self.timeout = False
        self.cached: set[tuple[int, ...]] = set()

    def _call(self, place: str) -> None:
        count = self.calls.get(place, 0)
        self.calls[place] = count + 1
        if place in self.fail and (count == self.fail[place] or (self.always and count > self.fail[place])):
            raise InfraFailure(f"{place} broke")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        self._call("reset")
        self.choices = ()
        return {"seed": seed}, {}

    def step(self, action: int) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self._call("step")
        self.choices = (*self.choices, action)
        executed = self.choices not in self.cached
        self.cached.add(self.choices)
        return {}, 0.0, len(self.choices) == LENGTH, False, {"spent": Spent(executed, 0.0)}

    @property
    def state_id(self) -> str:
        return "".join(map(str, self.choices))

    def snapshot(self) -> StateRef:
        return StateRef(self.state_id, {"choices": list(self.choices)})

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Obs:
        self._call("restore")
        if "mismatch" in self.fail:
            raise StateMismatch("a.py differs")
        self.choices = tuple(ref.payload["choices"])
        return {}

    def grade(self) -> Outcome:
        self._call("grade")
        return Timeout("grading") if self.timeout else Reward(float(self.choices[0] == 1))

    def close(self) -> None:
        pass
