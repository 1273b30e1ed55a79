"""Estimators of the advantage: pure functions from a task's experience to one number per decision.

A decision of advantage 0 teaches nothing and is left out of the loss. Trajectories without a judgement (infra error,
timeout) get 0 everywhere and take part in no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from refork.replay.trajectory import TaskExperience, Trajectory

DUST = 1e-9
"""An advantage of at most this times the largest return is a rounding error."""


@dataclass(frozen=True)
class Credit:
    """Advantages by trajectory key, each (steps,), float64; what was left out, by reason."""

    values: Mapping[str, np.ndarray]
    counts: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Decisions to imitate, by trajectory key, each (steps,) bool; none of a key that is not here."""


def returns(trajectories: Sequence[Trajectory]) -> np.ndarray:
    """Returns of the judged among `trajectories`, in order."""
    return np.array([t.value for t in trajectories if t.value is not None], dtype=np.float64)


def without_dust(credit: Credit, experience: TaskExperience) -> Credit:
    """`credit` with 0 where only rounding is left: a decision of such would count among those that teach something."""
    dust = DUST * np.abs(returns(experience.trajectories)).max(initial=0.0)
    return replace(credit, values={k: np.where(np.abs(v) > dust, v, 0.0) for k, v in credit.values.items()})


def grpo_advantage(value: float, group: np.ndarray) -> float:
    """(R - mean) / (std + 1e-6), unbiased std; 0 in a group of one (DeepSeekMath, arXiv 2402.03300)."""
    return 0.0 if len(group) < 2 else float((value - group.mean()) / (group.std(ddof=1) + 1e-6))


def dr_grpo_advantage(value: float, group: np.ndarray) -> float:
    """R - mean (arXiv 2503.20783)."""
    return float(value - group.mean())


def rloo_advantage(value: float, group: np.ndarray) -> float:
    """R minus the mean of the others; 0 in a group of one (arXiv 2402.14740)."""
    return 0.0 if len(group) < 2 else float((value - group.mean()) * len(group) / (len(group) - 1))


def maxrl_advantage(value: float, group: np.ndarray) -> float:
    """(R - mean) / (mean + 1e-6), for returns of 0 or more (MaxRL, arXiv 2602.02710): with returns of 0 or 1 the mean
    over the group climbs log P(success) to order n - 1, for a group without success gives nothing. 0 as well where the
    mean is not positive, for which the source says nothing."""
    mean = float(group.mean())
    return (value - mean) / (mean + 1e-6) if mean > 0 else 0.0


OUTCOME: dict[str, Callable[[float, np.ndarray], float]] = {
    "grpo": grpo_advantage,
    "dr_grpo": dr_grpo_advantage,
    "rloo": rloo_advantage,
    "maxrl": maxrl_advantage,
}
"""Outcome advantages: (return, returns of the group) -> one number for every step."""


def outcome_credit(experience: TaskExperience, name: str) -> Credit:
    """The outcome advantage `name` on every step of every main rollout; branches get none."""
    group = returns(experience.mains)
    values = {
        t.key: np.full(t.steps, 0.0 if t.value is None else OUTCOME[name](t.value, group)) for t in experience.mains
    }
    zero = len(group) > 0 and float(np.ptp(group)) == 0.0
    return Credit(values, {"zero_variance_groups": int(zero)})
