"""How strongly the mean of an action is to be drawn to its state's, told by patients that were left out.

Judged by what planning uses: the squared error of predicted values of the next state, not the likelihood of the next
state, which asks for far more shrinkage since most next states were never seen twice.
"""

from __future__ import annotations

import numpy as np
from refork.replay.seeding import generator
from refork.replay.transitions import Transitions
from refork.trainers.pvi.counts import Counts, count, shrunk_values

STRENGTHS = (10.0, 30.0, 100.0, 300.0, 1000.0)
FOLDS = 5
AS_LOGGED = 1e12
"""A shrinkage under which all actions of a state are worth the same."""


def choose_shrinkage(log: Transitions, transitions: np.ndarray, gamma: float, prior: float, sweeps: int) -> float:
    """The strength with the least error over `FOLDS` folds of patients; the greatest when there is one patient."""
    values = logged_values(count(log, transitions, gamma), prior, sweeps)
    patients, of_step = np.unique(log.patients[log.episode[transitions]], return_inverse=True)
    fold = (generator(0, "shrinkage folds").permutation(len(patients)) % FOLDS)[of_step]
    errors = dict.fromkeys(STRENGTHS, 0.0)
    for k in range(FOLDS):
        held = transitions[fold == k]
        if 0 < len(held) < len(transitions):
            shown = count(log, transitions[fold != k], gamma)
            for strength in STRENGTHS:
                errors[strength] += _error(log, held, shrunk_values(shown, values, strength, prior), values, gamma)
    return min(reversed(STRENGTHS), key=lambda strength: errors[strength])


def logged_values(counts: Counts, prior: float, sweeps: int) -> np.ndarray:
    """(S,): values of going on as was logged."""
    values = np.zeros(counts.states)
    for _ in range(sweeps):
        values = shrunk_values(counts, values, AS_LOGGED, prior)[:, 0]
    return values


def _error(log: Transitions, held: np.ndarray, predicted: np.ndarray, values: np.ndarray, gamma: float) -> float:
    """Sum of squared differences between what decisions were predicted to be worth and what they led to."""
    rows = log.rows(held)
    following = values[log.observations[rows + 1]] * ~log.terminated[held]
    found = log.rewards[held] + gamma ** np.asarray(log.dt[held], np.float64) * following
    return float(np.square(found - predicted[log.observations[rows], log.actions[held, 0]]).sum())
