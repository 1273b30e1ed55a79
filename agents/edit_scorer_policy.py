"""The edit scorer as it acts: numpy only, so that a rollout actor needs no torch and a decision takes microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class EditScorerPolicy:
    """pi(. | rows) from the weights that `EditScorer.acting_weights` exports."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._skip = weights["skip"]
        self._layers: list[tuple[np.ndarray, np.ndarray]] = []
        while f"layers.{len(self._layers)}.weight" in weights:
            name = f"layers.{len(self._layers)}"
            self._layers.append((weights[f"{name}.weight"], weights[f"{name}.bias"]))

    def logits(self, features: np.ndarray) -> np.ndarray:
        """(num_actions, features) -> (num_actions,), float32."""
        scores = features @ self._skip
        if not self._layers:
            return scores
        hidden = features
        for weight, bias in self._layers[:-1]:
            hidden = hidden @ weight
            hidden += bias
            np.maximum(hidden, 0.0, out=hidden)
        weight, bias = self._layers[-1]
        return scores + (hidden @ weight + bias)[:, 0]

    def probabilities(self, observation: Any) -> np.ndarray:
        """(num_actions,), float64. Raises ValueError when the mask leaves no action."""
        mask = observation["mask"]
        allowed = mask.nonzero()[0]
        if allowed.size == 0:
            raise ValueError("the mask leaves no action: the environment must end the episode or allow one")
        logits = self.logits(observation["features"][allowed]).astype(np.float64)
        logits -= logits.max()
        np.exp(logits, out=logits)
        result = np.zeros(mask.size)
        result[allowed] = logits / logits.sum()
        return result
