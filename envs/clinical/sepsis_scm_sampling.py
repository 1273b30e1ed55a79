"""Sampling the sepsis model, all patients at once, from noise that is given: the same noise is the same fate.

Every categorical of a step is drawn by the Gumbel-max trick (Oberst and Sontag 2019, section 3): the next level is the
argmax of log-probability plus noise. With other actions under the same noise these are true counterfactuals: a level
that an action made no less likely against the others is not left.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from refork.envs.clinical.sepsis_scm_exact import exact_model
from refork.envs.clinical.sepsis_scm_rules import ACTIONS, HORIZON, SIGNS, TREATED, VITALS, flags_after, levels, rules
from refork.envs.clinical.states_log import Courses

NOISE = sum(VITALS.values())
"""Numbers of Gumbel noise a step: one for each level of each vital sign."""


def draw_noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """(*shape, NOISE): standard Gumbel."""
    return rng.gumbel(size=(*shape, NOISE))


def draw_starts(rng: np.random.Generator, patients: int) -> np.ndarray:
    """(patients,): full states that they begin in."""
    cumulative = np.cumsum(exact_model().start)
    return np.searchsorted(cumulative, rng.random(patients) * cumulative[-1], side="right")


@cache
def _log_tables(published_glucose: bool) -> tuple[np.ndarray, ...]:
    """For each vital sign (2 * 8 * 8 * levels, levels): log-probabilities by diabetes, flags, action, level."""
    with np.errstate(divide="ignore"):
        return tuple(np.log(table).reshape(-1, table.shape[-1]) for table in rules(published_glucose).tables)


def next_states(states: np.ndarray, actions: np.ndarray, noise: np.ndarray, published_glucose: bool) -> np.ndarray:
    """Full states (B,), actions (B,), noise (B, NOISE) -> the states that follow (B,)."""
    diabetes, rest = np.divmod(states, SIGNS * TREATED)
    signs, flags = np.divmod(rest, TREATED)
    context = (diabetes * TREATED + flags) * ACTIONS + actions
    now, begin, after = levels()[signs], 0, np.zeros(len(states), np.int64)
    for i, (table, n) in enumerate(zip(_log_tables(published_glucose), VITALS.values(), strict=True)):
        scores = table[context * n + now[:, i]] + noise[:, begin : begin + n]
        after, begin = after * n + scores.argmax(-1), begin + n
    return (diabetes * SIGNS + after) * TREATED + flags_after(actions)


def play(
    starts: np.ndarray, policy: np.ndarray, noise: np.ndarray, choices: np.ndarray, published_glucose: bool
) -> Courses:
    """Play patients until their end, HORIZON steps at most.

    `starts` (B,): full states; `policy` (1440, 8); `noise` (HORIZON, B, NOISE); `choices` (HORIZON, B): uniform
    numbers that decide the actions. A patient's fate does not depend on who is played beside him.
    """
    ends, cumulative = exact_model().ends, np.cumsum(policy, -1)
    states = np.repeat(starts[:, None], HORIZON + 1, 1).astype(np.int32)
    actions = np.zeros((len(starts), HORIZON), np.int8)
    lengths = np.zeros(len(starts), np.int64)
    going = np.arange(len(starts))
    for t in range(HORIZON):
        here = states[going, t]
        chosen = (choices[t, going][:, None] >= cumulative[here, :-1]).sum(-1)
        states[going, t + 1] = next_states(here, chosen, noise[t, going], published_glucose)
        actions[going, t] = chosen
        lengths[going] += 1
        going = going[~ends[states[going, t + 1]]]
    return Courses(states, actions, lengths)
