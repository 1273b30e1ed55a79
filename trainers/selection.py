"""Chooses among trained candidates from logged data alone, and says by which rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act
from refork.replay.transitions import Transitions
from refork.trainers import fqe
from refork.trainers.fqe_network import NetworkSettings


@dataclass(frozen=True)
class Score:
    """One candidate: a setting, trained with one or several seeds."""

    value: float
    """Mean over seeds of the values estimated by FQE."""
    by_seed: tuple[float, ...]
    trusted: bool
    """All of them converged, within what values can be."""


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
    gamma: float | None = None,
    method: str = "auto",
    seed: int = 0,
    network: NetworkSettings | None = None,
) -> Choice:
    """The candidate of the greatest mean FQE value on `validation` (episodes that no candidate was trained on).

    `candidates`: for every setting its policies, one a seed. `gamma` None: that under which the log's values are
    stated. Candidates whose FQE did not converge, or left what values can be, are only chosen when all are such.
    Ties go to the first. Raises BadInput when there is nothing to choose from, or no validation data.
    """
    if not candidates or not all(candidates.values()):
        raise BadInput("selection: every candidate needs at least one policy")
    if not len(validation):
        raise BadInput(
            "selection: the validation part is empty; set env.options.fractions to leave some patients to it"
        )
    gamma = validation.spec.gamma if gamma is None else gamma
    acts = [act for policies in candidates.values() for act in policies]
    found = fqe.evaluate(validation, acts, gamma, method=method, folds=1, seed=seed, network=network)
    scores, start = {}, 0
    for name, policies in candidates.items():
        own = found[start : start + len(policies)]
        start += len(policies)
        values = tuple(f.value for f in own)
        trusted = all(f.converged and f.in_bounds and np.isfinite(f.value) for f in own)
        scores[name] = Score(float(np.mean(values)), values, trusted)
    eligible = [name for name in scores if scores[name].trusted] or list(scores)
    best = max(eligible, key=lambda name: np.nan_to_num(scores[name].value, nan=-np.inf))
    rule = (
        f"highest mean value over seeds, estimated by FQE ({found[0].method}) on {validation.episodes} validation "
        f"episodes, gamma {gamma:g}"
    )
    return Choice(best, rule, scores)
