"""The guardian in training: what it costs to leave the support of the logged decisions."""

from __future__ import annotations

import numpy as np
import torch
from refork.agents.density import CountDensity, Density, KernelDensity, fit_density
from refork.envs.log_spec import LogSpec
from refork.replay.transitions import Transitions
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.world import thinned
from torch import Tensor

MEASURED = 200_000
"""Most logged vectors that centres, bandwidth and threshold come from; states are all counted."""


class Guardian:
    """Cost max(0, 1 - density / threshold) of an action: 0 in support, 1 where nothing like it was ever logged."""

    def __init__(self, density: Density, logged: int = 0) -> None:
        """`logged`: decisions it was fitted to."""
        self.density, self._logged = density, logged
        self._table: Tensor | None = None
        if isinstance(density, CountDensity):
            self._table = _cost(density.table, density.threshold)

    @classmethod
    def fit(cls, config: AlgorithmConfig, log: Transitions, transitions: np.ndarray) -> Guardian:
        """On these transitions, the training part, and no others."""
        if log.spec.observation.kind == "vector":
            transitions = thinned(transitions, MEASURED)
        seen, actions = log.observations[log.rows(transitions)], log.actions[transitions]
        return cls(fit_density(log.spec, seen, actions, config.ood_percentile, config.centres, 0), len(transitions))

    @classmethod
    def blank(cls, spec: LogSpec) -> Guardian:
        """Before it is fitted: nothing costs anything."""
        action, size = spec.action, spec.observation.size
        if spec.observation.kind == "states":
            return cls(CountDensity(np.zeros((size, action.width), np.float32), -np.inf))
        points, kinds = (size, action.width) if action.kind == "discrete" else (size + action.width, 1)
        none = np.zeros(0, np.float32)
        return cls(
            KernelDensity(
                np.zeros(points), np.ones(points), none.reshape(0, points), none.reshape(0, kinds), 0.0, -np.inf
            )
        )

    def of_actions(self, observations: Tensor) -> Tensor:
        """(S, B, ...) -> (S, B, A): of every discrete action."""
        if self._table is not None:
            return self._table[observations]
        flat = observations.flatten(0, 1).numpy()
        return _cost(self.density.of_actions(flat), self.density.threshold).view(*observations.shape[:2], -1)

    def of_logged(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(S, B) of logged discrete actions; counted ones leave themselves out, or each would be its own support."""
        if self._table is None:
            return self.of_actions(observations).gather(-1, actions[..., None]).squeeze(-1)
        count = np.exp(self.density.of_actions(observations.numpy())) * self._logged
        others = np.take_along_axis(count, actions[..., None].numpy(), -1)[..., 0].round() - 1
        with np.errstate(divide="ignore"):
            return _cost(np.log(others / max(1, self._logged - 1)), self.density.threshold)

    def of_pairs(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(S, B, features) and continuous actions (S, B, d) in their own units -> (S, B)."""
        assert isinstance(self.density, KernelDensity)
        flat = self.density.of_pairs(observations.flatten(0, 1).numpy(), actions.flatten(0, 1).numpy())
        return _cost(flat, self.density.threshold).view(observations.shape[:2])


def _cost(log_density: np.ndarray, threshold: float) -> Tensor:
    return torch.from_numpy(1 - np.exp(np.minimum(log_density - threshold, 0))).float()
