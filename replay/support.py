"""What a policy's recommendations would do beside what was logged: support, safety and change of dose. Pure, numpy.

Nothing here estimates a value; every figure is a plain share over logged situations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Limit, LogSpec, column_number
from refork.replay.transitions import Transitions

SAFETY = (Limit("o:SpO2", "below", 92.0), Limit("o:urine_ml_kg_h", "below", 0.5))
"""Oxygen saturation in %, urine output in mL/kg/h: what is watched where a log has these columns."""


class Columns(Protocol):
    """What has named columns: a log, or what is known of its shape."""

    @property
    def spec(self) -> LogSpec: ...

    @property
    def state_features(self) -> np.ndarray | None: ...


def watched(log: Columns) -> tuple[Limit, ...]:
    """Those of `SAFETY` whose columns the log has."""
    observation = log.spec.observation
    if observation.per_agent or (observation.kind == "states" and log.state_features is None):
        return ()
    plain = {name.removeprefix("o:") for name in observation.names}
    return tuple(limit for limit in SAFETY if limit.column.removeprefix("o:") in plain)


def column_values(log: Transitions, column: str, rows: np.ndarray) -> np.ndarray:
    """(K,): the named column in these rows of observations, in its own unit; of states: of their features."""
    number = column_number(log.spec.observation, column)
    seen = log.observations[rows]
    if log.spec.observation.kind == "vector":
        return np.asarray(seen[:, number])
    if log.state_features is None:
        raise BadInput(f"column {column!r}: this log of states has no features of its states")
    return np.asarray(log.state_features[seen, number])


def costs(log: Transitions, limit: Limit, transitions: np.ndarray) -> np.ndarray:
    """(K,) float32: 1 where the row that a transition led to violates the limit, else 0. Never negative."""
    return limit.violated(column_values(log, limit.column, log.rows(transitions) + 1)).astype(np.float32)


def cost_log(log: Transitions, limit: Limit) -> Transitions:
    """The same log with the cost in place of the reward: every estimator of returns then estimates violations."""
    everything = np.arange(len(log))
    spec = replace(log.spec, reward=f"1 for every step that led to {limit}, else 0")
    return replace(log, spec=spec, rewards=costs(log, limit, everything))


def ood_share(policy: np.ndarray, density: np.ndarray, threshold: float, weights: np.ndarray | None = None) -> float:
    """Share of a policy's recommendations whose (log-)density is under the threshold.

    `policy`, `density` (B, A): probabilities of discrete actions and the density of every (s, a); of continuous
    actions (B,) both, `policy` all ones. `weights` (B,): of the situations.
    """
    outside = policy * (density < threshold)
    return float(np.average(outside.reshape(len(outside), -1).sum(1), weights=weights))


def rare_share(policy: np.ndarray, behaviour: np.ndarray, below: float = 0.01) -> float:
    """Share of recommended actions, (B, ..., A) probabilities, that clinicians choose with a probability under `below`.

    Several decision makers (B, n, A): the mean over them, each against its own behaviour.
    """
    return float((policy * (behaviour < below)).sum(-1).mean())


@dataclass(frozen=True)
class DoseBin:
    """What becomes of the situations in which one dose was logged."""

    level: float
    """The logged dose; of continuous doses the mean of the bin."""
    count: int
    lower: float
    """Share of recommendations under the logged dose."""
    same: float
    higher: float
    mean: float
    """Mean recommended dose."""


def dose_change(levels: np.ndarray, logged: np.ndarray, policy: np.ndarray) -> list[DoseBin]:
    """Change by logged dose, for one channel of discrete actions; doses that were never logged are left out.

    `levels` (A,): dose of each action, `logged` (B,): actions, `policy` (B, A): recommended probabilities. For actions
    that code several channels (5 x 5 doses) call it once a channel, with that channel's levels.
    """
    doses = levels[logged]
    return [
        _bin(float(level), levels[None], policy[doses == level], np.full((int((doses == level).sum()), 1), level))
        for level in np.unique(doses)
    ]


def dose_change_continuous(logged: np.ndarray, recommended: np.ndarray, bins: int = 5) -> list[DoseBin]:
    """The same for doses (B,) of one continuous channel, in bins of equal counts.

    `same`: within a tenth of the logged range.
    """
    edges = np.quantile(logged, np.linspace(0, 1, bins + 1)[1:-1])
    where = np.searchsorted(edges, logged, side="right")
    near = 0.1 * float(np.ptp(logged))
    return [
        _bin(
            float(logged[here].mean()), recommended[here, None], np.ones((int(here.sum()), 1)), logged[here, None], near
        )
        for here in (where == k for k in np.unique(where))
    ]


def _bin(level: float, doses: np.ndarray, policy: np.ndarray, logged: np.ndarray, near: float = 0.0) -> DoseBin:
    """`doses` (B or 1, A), `policy` (B, A), `logged` (B, 1)."""
    change = doses - logged
    same = np.abs(change) <= near

    def share(mask: np.ndarray) -> float:
        return float((policy * mask).sum(1).mean())

    return DoseBin(
        level, len(policy), share((change < 0) & ~same), share(same), share((change > 0) & ~same),
        float((policy * doses).sum(1).mean()),
    )  # fmt: skip
