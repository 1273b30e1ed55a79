"""Recorded behaviour probabilities that stand for "unknown"."""

from __future__ import annotations

import numpy as np
from refork.envs.forkable import BadInput

SURELY = 0.8
"""A model's mean probability of actions recorded with probability 1 is at least this, or they were not sure."""


def check_certainty(known: np.ndarray, modelled: np.ndarray) -> None:
    """Raises BadInput where probability 1 stands for "unknown".

    `known` (N,): recorded, NaN where unknown. `modelled` (N,): what a cross-fitted model says of those actions.
    """
    sure = known == 1
    if not sure.any():
        return
    model = float(modelled[sure].mean())
    if model < SURELY and sure.sum() >= 30:
        raise BadInput(
            f"{int(sure.sum())} of {len(known)} behaviour probabilities are exactly 1, but a model of the log gives "
            f"those actions {model:.2f} on average: leave unknown ones empty (NaN), never 1"
        )
