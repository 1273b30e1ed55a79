"""A model of logs of states: what followed a decision in the log, shrunk to what followed any decision in its state.

P(. | s, a) = (n(s, a, .) + k P(. | s)) / (n(s, a) + k). The likelihood of hundreds of next states would shrink all that
actions do away, so k is the one that best predicts what decisions of held-out patients were worth, r + V(s') with the
clinicians' V of the other patients; the held-out likelihood is reported beside.
To draw from it is to draw a logged transition, with its reward, end and time: nothing that never happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from refork.envs.log_spec import LogSpec
from refork.replay.transitions import Transitions
from refork.trainers.ogsrl.world import Imagined, Noise, part_by_patient
from torch import Tensor

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""Tried for k; for the shrinkage of P(. | s) to P(.) as well."""
SWEEPS = 300
"""Of the Bellman equation, for the clinicians' value of each state."""


class CountedWorld:
    """For S seeds alike: it depends on the log alone."""

    def __init__(self, spec: LogSpec, gamma: float) -> None:
        self._states, self._actions, self._gamma = spec.observation.size, spec.action.width, gamma
        self._led: Tensor | None = None
        self.strength = 0.0

    @property
    def fitted(self) -> bool:
        return self._led is not None

    def fit(self, log: Transitions, transitions: np.ndarray) -> dict[str, float]:
        """Strength chosen on held-out patients, then all transitions counted."""
        shown, held = part_by_patient(log, transitions)
        fitted, judged = (_Decisions.of(log, part, self._gamma) for part in (shown, held))
        errors = self._value_errors(fitted, judged)
        self.strength = min(STRENGTHS, key=lambda k: errors[k])
        likelihood, plain = self._likelihoods(fitted, judged)
        self._count(log, transitions)
        return {
            "model/heldout_value_rmse": errors[self.strength],
            "model/heldout_value_rmse_of_states_alone": errors[np.inf],
            "model/heldout_log_likelihood": likelihood,
            "model/heldout_log_likelihood_of_states_alone": plain,
            "model/shrinkage": self.strength,
        }

    def _value_errors(self, fitted: _Decisions, judged: _Decisions) -> dict[float, float]:
        """By strength: root mean squared error of r + V(s') of held-out decisions; infinite: without actions."""
        counts = np.maximum(np.bincount(fitted.state, minlength=self._states), 1)
        values = np.zeros(self._states)
        for _ in range(SWEEPS):
            worth = fitted.rewards + fitted.discounts * values[fitted.led]
            values = np.bincount(fitted.state, worth, self._states) / counts
        goals = judged.rewards + judged.discounts * values[judged.led]
        pair, asked = (x.state * self._actions + x.action for x in (fitted, judged))
        size = self._states * self._actions
        total, count = np.bincount(pair, worth, size)[asked], np.bincount(pair, minlength=size)[asked]
        prior = values[judged.state]
        found = {k: _shrunk(total, count, prior, k) for k in STRENGTHS} | {np.inf: prior}
        return {k: float(np.sqrt(np.square(goals - guess).mean())) for k, guess in found.items()}

    def _likelihoods(self, shown: _Decisions, held: _Decisions) -> tuple[float, float]:
        """Mean log-likelihood of held-out next states at this strength and, at its best strength, without actions."""
        size = self._states
        marginal = (np.bincount(shown.led, minlength=size)[held.led] + 1) / (len(shown.led) + size)
        alone = [_shrunk(*_counts(shown.state, shown.led, held.state, held.led, size), marginal, k) for k in STRENGTHS]
        by_state = max(alone, key=lambda p: float(np.log(p).mean()))
        pair, asked = (x.state * self._actions + x.action for x in (shown, held))
        found = _shrunk(*_counts(pair, shown.led, asked, held.led, size), by_state, self.strength)
        return float(np.log(found).mean()), float(np.log(by_state).mean())

    def _count(self, log: Transitions, transitions: np.ndarray) -> None:
        pairs = _Decisions.of(log, transitions, self._gamma)
        key = pairs.state * self._actions + pairs.action
        order = np.argsort(key, kind="stable")
        counts = np.bincount(key, minlength=self._states * self._actions)
        self._starts = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
        self._led = torch.from_numpy(pairs.led[order])
        chosen = transitions[order]
        self._rewards = torch.from_numpy(pairs.rewards[order])
        self._ended = torch.from_numpy(np.asarray(log.terminated[chosen]))
        self._dt = torch.from_numpy(np.asarray(log.dt[chosen]))

    def step(self, observations: Tensor, actions: Tensor, uniform: Noise, normal: Noise) -> Imagined:
        """Logged transitions drawn with replacement; not known where nothing was logged in the state."""
        assert self._led is not None
        pair = observations * self._actions + actions
        own = self._starts[pair + 1] - self._starts[pair]
        first = self._starts[observations * self._actions]
        within = self._starts[(observations + 1) * self._actions] - first
        noise = uniform(observations.shape[1], 2)
        from_pair = noise[..., 0] * (own + self.strength) < own
        low, count = torch.where(from_pair, self._starts[pair], first), torch.where(from_pair, own, within)
        drawn = (low + (noise[..., 1] * count).long().clamp_max_(count - 1)).clamp_(0, len(self._led) - 1)
        return Imagined(self._led[drawn], self._rewards[drawn], self._ended[drawn], self._dt[drawn], within > 0)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: it is counted again from the log, the same."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The log tells all."""


@dataclass(frozen=True)
class _Decisions:
    """(K,) each, of transitions."""

    state: np.ndarray
    action: np.ndarray
    led: np.ndarray
    rewards: np.ndarray
    discounts: np.ndarray
    """gamma^dt, 0 at an end."""

    @classmethod
    def of(cls, log: Transitions, transitions: np.ndarray, gamma: float) -> _Decisions:
        seen, rows = log.observations, log.rows(transitions)
        return cls(
            seen[rows].astype(np.int64),
            np.asarray(log.actions[transitions, 0]),
            seen[rows + 1].astype(np.int64),
            np.asarray(log.rewards[transitions]),
            gamma ** log.dt[transitions] * ~log.terminated[transitions],
        )


def _counts(
    key: np.ndarray, led: np.ndarray, asked: np.ndarray, asked_led: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """How often (key, led) and key were shown, for every pair that is asked: (H,) each."""
    return _how_often(key * size + led, asked * size + asked_led), _how_often(key, asked)


def _how_often(shown: np.ndarray, asked: np.ndarray) -> np.ndarray:
    shown = np.sort(shown)
    return np.searchsorted(shown, asked, side="right") - np.searchsorted(shown, asked, side="left")


def _shrunk(together: np.ndarray, total: np.ndarray, prior: np.ndarray, strength: float) -> np.ndarray:
    return (together + strength * prior) / (total + strength)
