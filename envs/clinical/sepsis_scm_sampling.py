"""Sampling the sepsis model, all patients at once, from noise that is given: the same noise is the same fate.

Every categorical of a step is drawn by the Gumbel-max trick (Oberst and Sontag 2019, section 3): the next level is the
argmax of log-probability plus noise. With other actions under the same noise these are true counterfactuals: a level
that an action made no less likely against the others is not left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from refork.envs.clinical.sepsis_scm_exact import exact_model
from refork.envs.clinical.sepsis_scm_rules import (
    ACTIONS,
    HORIZON,
    SIGNS,
    STATES,
    TREATED,
    VITALS,
    flags_after,
    levels,
    rules,
)
from refork.envs.clinical.states_log import Courses

NOISE = sum(VITALS.values())
"""Numbers of Gumbel noise a step: one for each level of each vital sign."""


def draw_noise(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """(*shape, NOISE): standard Gumbel, as minus the log of exponential noise: three times as fast as `rng.gumbel`."""
    return -np.log(rng.standard_exponential((*shape, NOISE)))


def draw_starts(rng: np.random.Generator, patients: int) -> np.ndarray:
    """(patients,): full states that they begin in."""
    return rng.choice(STATES, patients, p=exact_model().start)


@dataclass(frozen=True)
class Leads:
    """Where a state and an action lead; rows are numbered 8 * state + action."""

    scores: np.ndarray
    """(1440 * 8, NOISE): log-probabilities of the next level, one vital sign after the other."""
    fixed: np.ndarray
    """(1440 * 8,): what follows for certain: diabetes and flags."""


@cache
def _leads(published_glucose: bool) -> Leads:
    """The tables of the rules, spread over all states."""
    every = np.arange(STATES * ACTIONS) // ACTIONS
    diabetes, rest = np.divmod(every, SIGNS * TREATED)
    signs, flags = np.divmod(rest, TREATED)
    actions = np.tile(np.arange(ACTIONS), STATES)
    tables, now = rules(published_glucose), levels()[signs].T
    with np.errstate(divide="ignore"):
        scores = [np.log(table[diabetes, flags, actions, level]) for table, level in zip(tables, now, strict=True)]
    return Leads(np.concatenate(scores, -1), diabetes * SIGNS * TREATED + flags_after(actions))


def next_states(states: np.ndarray, actions: np.ndarray, noise: np.ndarray, published_glucose: bool) -> np.ndarray:
    """Full states (B,), actions (B,), noise (B, NOISE) -> the states that follow (B,)."""
    leads = _leads(published_glucose)
    rows = states * ACTIONS + actions
    scores = leads.scores[rows] + noise
    signs: np.ndarray | int = 0
    begin = 0
    for n in VITALS.values():
        signs = signs * n + scores[:, begin : begin + n].argmax(-1)
        begin += n
    return leads.fixed[rows] + TREATED * np.asarray(signs)


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
