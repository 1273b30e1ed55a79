"""Behaviour probabilities as a log records them: known, unknown, or not probabilities at all."""

from __future__ import annotations

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.transitions import Transitions

SURELY = 0.8
"""A model's mean probability of actions recorded with probability 1 is at least this, or they were not sure."""


def recorded(log: Transitions) -> np.ndarray:
    """(N,): the logged behaviour probabilities (densities), NaN where unknown.

    Raises BadInput, naming the transition, for what cannot be a probability of an action that was taken: 0 or less (a
    log-likelihood), and for discrete actions more than 1.
    """
    values = np.asarray(log.behaviour, np.float64)
    discrete = log.spec.action.kind == "discrete"
    with np.errstate(invalid="ignore"):
        wrong = (values <= 0) | np.isinf(values) | ((values > 1 + 1e-6) if discrete else False)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        guess = "; these look like log-likelihoods: take exp" if (values[wrong] <= 0).all() else ""
        raise BadInput(
            f"behaviour probability of transition {first} is {values[first]:g}: an action that was taken has a "
            f"probability in (0, 1]{guess}; unknown ones are left empty (NaN)"
        )
    return values


def check_certainty(known: np.ndarray, modelled: np.ndarray) -> None:
    """Raises BadInput where probability 1 stands for "unknown".

    `known` (N,) as `recorded` gives it, `modelled` (N,): what a cross-fitted model says of the same logged actions.
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
