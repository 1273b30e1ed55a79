"""How a policy fails in games, by thresholds that were fixed before anything was trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Failure = Literal["divergence", "stagnation", "collapse", "mis-coordination", "none"]

STAGNATION = 0.95
"""Share of passes from which a policy is said to do nothing."""
COLLAPSE = 0.5
"""Part of its own best earlier evaluation below which a policy has collapsed."""
LITTLE = 0.2
"""Fraction of the bound below which builds that are not used are mis-coordination ..."""
UNSERVED = 0.5
"""... when more than this share of the built capacity serves nobody."""


@dataclass(frozen=True)
class Signs:
    """What an evaluation saw of a policy on some games."""

    fraction: float
    """Of the bound."""
    passes: float
    """Share of all moves."""
    unserved: float
    """Share of the built capacity of both operators, over the rounds, that served nobody."""
    best_before: float | None = None
    """Best fraction of an earlier evaluation of the same run; None: there was none."""


def failure(signs: Signs) -> Failure:
    """The first that holds: divergence (not finite), stagnation, divergence (building at a loss), collapse,
    mis-coordination, none."""
    if not math.isfinite(signs.fraction):
        return "divergence"
    if signs.passes >= STAGNATION:
        return "stagnation"
    if signs.fraction < 0:
        return "divergence"
    if signs.best_before is not None and signs.fraction < COLLAPSE * signs.best_before:
        return "collapse"
    if signs.fraction < LITTLE and signs.unserved > UNSERVED:
        return "mis-coordination"
    return "none"
