"""What worlds predict of a transition: which features of states are categories, and which are numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from refork.agents.q_networks import LogShape
from torch import Tensor

MOST_LEVELS = 12
"""A feature of states with at most that many values is a category: a Gaussian would leave room for confounders that
only mend its misfit."""


@dataclass(frozen=True)
class Outcomes:
    """Columns of what follows."""

    levels: tuple[int, ...]
    """Of each category."""
    table: Tensor
    """(states, categories) int64: the level of each state; (0, 0) for logs of vectors."""
    numbers: np.ndarray
    """Columns of the features that are numbers."""

    @classmethod
    def of(cls, shape: LogShape) -> Outcomes:
        """States without features are one category; vectors are numbers."""
        spec, features = shape.spec.observation, shape.state_features
        if spec.kind == "vector":
            return cls((), torch.zeros(0, 0, dtype=torch.int64), np.arange(spec.size))
        if features is None:
            return cls((spec.size,), torch.arange(spec.size)[:, None], np.arange(0))
        found = [np.unique(column, return_inverse=True) for column in features.T]
        few = np.array([len(values) <= MOST_LEVELS for values, _ in found], bool)
        parts = [torch.from_numpy(index) for (_, index), keep in zip(found, few, strict=True) if keep]
        table = torch.stack(parts, 1) if parts else torch.zeros(spec.size, 0, dtype=torch.int64)
        return cls(tuple(len(v) for (v, _), keep in zip(found, few, strict=True) if keep), table, np.flatnonzero(~few))
