"""Actions of all decision makers together: as the number of a joint action, or as one vector."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from refork.envs.log_spec import ActionSpec

MOST_LISTED = 64


@dataclass(frozen=True)
class JointActions:
    """What can be done at a step."""

    spec: ActionSpec

    @property
    def count(self) -> int:
        """How many joint actions there are; 0: too many to list, or continuous."""
        count = prod(self.spec.sizes)
        return count if self.spec.kind == "discrete" and count <= MOST_LISTED else 0

    @property
    def vector_size(self) -> int:
        return sum(self.spec.sizes)

    def numbers(self, actions: np.ndarray) -> np.ndarray:
        """(..., n) -> (...), int64: the last decision maker's action changes fastest."""
        return np.ravel_multi_index(tuple(np.moveaxis(np.asarray(actions), -1, 0)), self.spec.sizes)

    def probability(self, each: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Of these joint actions (B, n), of independent decision makers (B, n, width) -> (B,)."""
        return np.take_along_axis(each, np.asarray(actions)[..., None], -1)[..., 0].prod(-1)

    def probabilities(self, each: np.ndarray) -> np.ndarray:
        """(B, n, width) of independent decision makers -> (B, count)."""
        joint = each[:, 0, : self.spec.sizes[0]]
        for maker, size in list(enumerate(self.spec.sizes))[1:]:
            # (B, k) and (B, size) -> (B, k * size)
            joint = (joint[:, :, None] * each[:, maker, None, :size]).reshape(len(each), -1)
        return joint

    def vectors(self, actions: np.ndarray) -> np.ndarray:
        """(..., n) -> (..., sum of sizes), one-hot; continuous (..., n, d) -> (..., n * d), scaled to [-1, 1]."""
        actions = np.asarray(actions)
        if self.spec.kind == "continuous":
            low, high = np.array(self.spec.low, np.float32), np.array(self.spec.high, np.float32)
            scaled = (actions - low) / (high - low) * 2 - 1
            return scaled.reshape(*actions.shape[:-2], -1).astype(np.float32)
        parts = [np.eye(size, dtype=np.float32)[actions[..., i]] for i, size in enumerate(self.spec.sizes)]
        return np.concatenate(parts, -1)
