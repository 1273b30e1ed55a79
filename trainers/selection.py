"""Chooses among trained candidates from logged data alone, and says by which rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act
from refork.replay.transitions import Transitions
from refork.trainers import fqe
from refork.trainers.fqe_stack import NetworkSettings


@dataclass(frozen=True)
class Score:
    """One candidate: a setting, trained with one or several seeds."""

    value: float
    """Mean over seeds of the values estimated by FQE."""
    by_seed: tuple[float, ...]
    possible: bool
    """All of them are numbers within what values can be."""
    converged: bool
    """FQE of all of them did."""


@dataclass(frozen=True)
class Choice:
    """What was chosen."""

    name: str
    rule: str
    """In words, for the report."""
    scores: Mapping[str, Score]


def select(
    candidates: Mapping[str, Sequence[Act]],
    validation: Transitions,
    *,
    training: Transitions | None = None,
    gamma: float | None = None,
    method: str = "auto",
    seed: int = 0,
    network: NetworkSettings | None = None,
) -> Choice:
    """The candidate of the greatest mean FQE value on `validation`, episodes that no candidate was trained on.

    With `training`, the episodes that they were trained on, FQE is fitted on both together, in two folds by patient:
    then an episode's value still never comes from its own patient, and several times as much data speaks. Policies
    planned on logs of 500 and 2,500 episodes of ICU-Sepsis were ordered better so than by the validation part alone, at
    10,000 no better (scripts/bench/ope.py).

    `candidates`: for every setting its policies, one a seed. `gamma` None: that under which the log's values are
    stated. `method` auto: shrunk tables for logs of states, networks otherwise. Candidates whose FQE left what values
    can be are only chosen when all are such. That it has not settled is no reason: with ten decision makers the settled
    ones were those that stand still. Ties go to the first. Raises BadInput when there is nothing to choose from, or no
    validation data.
    """
    if not candidates or not all(candidates.values()):
        raise BadInput("selection: every candidate needs at least one policy")
    if not len(validation):
        raise BadInput(
            "selection: the validation part is empty; set env.options.fractions to leave some patients to it"
        )
    log = validation if training is None else joined(training, validation)
    gamma = log.spec.gamma if gamma is None else gamma
    if method == "auto":
        method = "network" if "shrunk table" in fqe.undefined(log) else "shrunk table"
    acts = [act for policies in candidates.values() for act in policies]
    folds = 1 if training is None else 2
    found = iter(fqe.evaluate(log, acts, gamma, method=method, folds=folds, seed=seed, network=network))
    scores = {name: _score([next(found) for _ in policies]) for name, policies in candidates.items()}
    eligible = [name for name in scores if scores[name].possible] or list(scores)
    best = max(eligible, key=lambda name: np.nan_to_num(scores[name].value, nan=-np.inf))
    part = "validation" if training is None else "training and validation, cross-fitted,"
    rule = (
        f"highest mean value over seeds, estimated by FQE ({method}) on {log.episodes} {part} episodes, gamma {gamma:g}"
    )
    return Choice(best, rule, scores)


def _score(found: Sequence[fqe.FQE]) -> Score:
    """Of one candidate's seeds."""
    values = tuple(f.value for f in found)
    possible = all(f.in_bounds and bool(np.isfinite(f.starts).all()) for f in found)
    return Score(float(np.mean(values)), values, possible, all(f.converged for f in found))


def joined(first: Transitions, second: Transitions) -> Transitions:
    """The episodes of two parts of one log as one."""
    by_row = ("observations", "actions", "rewards", "terminated", "truncated", "patients", "behaviour", "dt")
    arrays: dict[str, Any] = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in by_row}
    allowed = None
    if first.allowed is not None and second.allowed is not None:
        allowed = np.concatenate([first.allowed, second.allowed])
    starts = np.concatenate([first.starts[:-1], second.starts + len(first)])
    return replace(first, **arrays, starts=starts, allowed=allowed)
