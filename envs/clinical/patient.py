"""One patient as a Gymnasium environment that can go back.

The noise of every step is a function of a key and of the number of the step alone: it is outside what is done. Going
back with `noise="same"` keeps the key, so that the same actions meet the same fate, and other actions meet the same
noise: a true counterfactual of this patient, by Gumbel-max (Oberst and Sontag 2019). `noise="fresh"` draws a new key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from refork.envs.forkable import BadInput, Noise, Outcome, Reward, StateMismatch, StateRef

Observe = Literal["state", "features"]
KEYS = 2**31
ANY = "any"


@dataclass(frozen=True)
class PatientModel:
    """A model of S states as `PatientEnv` plays it."""

    identity: Mapping[str, str]
    """What tells this model from others: its name, and options that change what happens."""
    start: np.ndarray
    """(S,): chance to begin in a state."""
    rewards: np.ndarray
    """(S,): of entering a state."""
    ends: np.ndarray
    """(S,), bool"""
    shown: np.ndarray
    """(S,): number under which a state is observed."""
    features: np.ndarray
    """(numbers, F), float32: of what is observed."""
    names: tuple[str, ...]
    """Of the features."""
    sizes: tuple[int, ...]
    """Actions of each decision maker."""
    horizon: int
    """Steps after which an episode is cut; 0: never."""
    noise: int
    """Numbers of noise a step."""
    lead: Callable[[int, int, np.ndarray], int]
    """State, joint action, noise (noise,) from [0, 1) -> the state that follows; `gumbel` makes Gumbel noise of it."""


def gumbel(uniform: np.ndarray) -> np.ndarray:
    """Uniform numbers -> standard Gumbel noise, elementwise."""
    with np.errstate(divide="ignore"):  # 0 becomes -inf, which wins never
        return np.asarray(-np.log(-np.log(uniform)))


class PatientEnv(gym.Env[Any, Any]):
    """The policy is the treatment; what is not shown (`PatientModel.shown`) is in no observation."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it per instance)

    def __init__(self, model: PatientModel, task: str = ANY, *, observe: Observe = "state") -> None:
        """`task`: "any" draws a patient at every reset; "patient-NUMBER" begins in the same state every time.

        `observe`: the number of the state, or its features. Raises BadInput.
        """
        if observe not in ("state", "features"):
            raise BadInput(f"observe={observe!r} of a patient: expected state or features")
        self._model, self._observe = model, observe
        self._first = _first_state(model, task)
        self._root = hashlib.sha256(json.dumps(dict(model.identity)).encode()).hexdigest()
        self._source = (-1, -1), np.random.default_rng(0)  # (key, step) whose noise it draws next, and what draws it
        self.feature_names = model.names
        sizes = model.sizes
        self.action_space = gym.spaces.Discrete(sizes[0]) if len(sizes) == 1 else gym.spaces.MultiDiscrete(list(sizes))
        if observe == "state":
            self.observation_space = gym.spaces.Discrete(len(model.features))
        else:
            low, high = model.features.min(0), model.features.max(0)
            self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)
        self.reset()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`options` are Gymnasium's; there are none."""
        super().reset(seed=seed)
        drawn = _start(self._model, self.np_random)
        self._state, self._t = drawn if self._first is None else self._first, 0
        self._key = int(self.np_random.integers(KEYS))
        return self._observation(), {}

    def _observation(self) -> Any:
        number = np.int64(self._model.shown[self._state])
        return number if self._observe == "state" else self._model.features[number].copy()

    @property
    def _ended(self) -> bool:
        cut = self._model.horizon > 0 and self._t >= self._model.horizon
        return cut or bool(self._model.ends[self._state])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Raises ValueError for an action that does not exist, RuntimeError after the end."""
        if self._ended:
            raise RuntimeError("the episode has ended: call reset or restore")
        self._state = self._model.lead(self._state, self._joint(action), self._noise())
        self._t += 1
        terminated = bool(self._model.ends[self._state])
        reward = float(self._model.rewards[self._state])
        return self._observation(), reward, terminated, self._ended and not terminated, {}

    def _noise(self) -> np.ndarray:
        """(noise,): of the coming step, a function of key and step; drawn on from the last step where that is kept."""
        place, source = self._source
        if place != (self._key, self._t):
            stream = np.random.PCG64(self._key)
            source = np.random.Generator(stream.advance(self._t * self._model.noise))
        self._source = (self._key, self._t + 1), source
        return source.random(self._model.noise)

    def _joint(self, action: Any) -> int:
        sizes = self._model.sizes
        try:
            choices = [index(action)] if len(sizes) == 1 else [index(choice) for choice in action]
        except TypeError:
            choices = []
        if len(choices) != len(sizes) or not all(0 <= c < size for c, size in zip(choices, sizes, strict=True)):
            expected = " and ".join(f"0 to {size - 1}" for size in sizes)
            raise ValueError(f"action {action!r} of a patient: expected {expected}")
        joint = 0
        for choice, size in zip(choices, sizes, strict=True):
            joint = joint * size + choice
        return joint

    @property
    def state_id(self) -> str:
        """Of the model, the step and the whole state, also of what is hidden; not of noise yet to come."""
        return self._id(self._state, self._t)

    def _id(self, state: int, t: int) -> str:
        return hashlib.sha256(f"{self._root}/{t}/{state}".encode()).hexdigest()

    def snapshot(self) -> StateRef:
        place = {"state": int(self._state), "step": self._t, "noise": self._key}
        return StateRef(self.state_id, {"model": dict(self._model.identity), **place})

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Any:
        """`same` keeps the noise of the snapshot for all steps to come; `fresh` draws it anew, every time."""
        payload = ref.payload
        for name, value in self._model.identity.items():
            if (other := payload.get("model", {}).get(name)) != value:
                raise StateMismatch(f"the reference is of another model: its {name} is {other}, here it is {value}")
        state, t = int(payload["state"]), int(payload["step"])
        if (found := self._id(state, t)) != ref.state_id:
            raise StateMismatch(f"step {t} restored is {found[:12]}, the reference names {ref.state_id[:12]}")
        self._state, self._t = state, t
        self._key = int(payload["noise"]) if noise == "same" else int(self.np_random.integers(KEYS))
        return self._observation()

    def grade(self) -> Outcome:
        """The return so far: all reward comes at the end."""
        return Reward(float(self._model.rewards[self._state]))

    def close(self) -> None:
        """Nothing is held."""


def _start(model: PatientModel, rng: np.random.Generator) -> int:
    return int(rng.choice(len(model.start), p=model.start))


def _first_state(model: PatientModel, task: str) -> int | None:
    """Where the patient of that name begins; None: drawn at every reset."""
    if task == ANY:
        return None
    prefix, _, number = str(task).partition("-")
    if prefix != "patient" or not number.isdecimal():
        raise BadInput(f"task {task!r} is no patient: expected 'any' or 'patient-NUMBER', e.g. 'patient-17'")
    return _start(model, np.random.default_rng([17, int(number)]))
