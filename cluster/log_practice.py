"""What a policy would do in the situations of a log: support and change of dose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from refork.agents.density import Density, KernelDensity, fit_density
from refork.cluster.log_doses import channels, maker_names
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act
from refork.replay.support import DoseBin, dose_change, dose_change_continuous, ood_share, rare_share
from refork.replay.transitions import Transitions
from refork.trainers.joint_actions import JointActions

PERCENTILE, CENTRES = 5.0, 2000
"""Of training densities under which a recommendation is out of distribution; kernels of vectors."""


@dataclass(frozen=True)
class Practice:
    """Of one policy."""

    rare: float | None
    """Share of recommended actions that clinicians choose with a probability under 1 %; None: continuous actions."""
    ood: float | None
    """Share of recommendations whose density in the training part is under its 5th percentile; None: not defined."""
    agree: float | None
    """Share of situations in which the recommended action is the logged one."""
    doses: Mapping[str, Sequence[DoseBin]]
    """Change by logged dose, by channel."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Situations:
    """The decisions of one log, and what is known of who made them."""

    log: Transitions
    probabilities: np.ndarray | None
    """(N, n, width) under a model of who acted; None: continuous actions."""
    density: Density | None
    """Of the training part."""


def training_density(log: Transitions) -> Density | None:
    """None where it is not defined: several decision makers."""
    rows = log.rows(np.arange(len(log)))
    try:
        return fit_density(log.spec, np.asarray(log.observations[rows]), log.actions, PERCENTILE, CENTRES, 0)
    except BadInput:
        return None


def acted_in(log: Transitions, act: Act) -> np.ndarray:
    """(N, n, ...): what `act` would do at every decision of a log."""
    rows = log.rows(np.arange(len(log)))
    return act(np.asarray(log.observations[rows]), None if log.allowed is None else np.asarray(log.allowed[rows]))


def practice(found: Situations, acted: np.ndarray) -> Practice:
    """Of a policy that would do that in these situations."""
    log = found.log
    if found.probabilities is None:
        return Practice(None, _ood(found, acted), None, _continuous_doses(log, acted))
    agree = JointActions(log.spec.action).probability(acted, log.actions).mean()
    rare = rare_share(acted, found.probabilities)
    return Practice(rare, _ood(found, acted), float(agree), _doses(log, acted))


def _ood(found: Situations, acted: np.ndarray) -> float | None:
    density, log = found.density, found.log
    if density is None:
        return None
    some = np.linspace(0, len(log) - 1, min(len(log), 5000)).astype(np.int64)
    seen = np.asarray(log.observations[log.rows(some)])
    if found.probabilities is not None:
        return ood_share(acted[some, 0], density.of_actions(seen), density.threshold)
    assert isinstance(density, KernelDensity)
    return ood_share(np.ones(len(some)), density.of_pairs(seen, acted[some, 0]), density.threshold)


def _doses(log: Transitions, acted: np.ndarray) -> dict[str, Sequence[DoseBin]]:
    known = channels(log.spec)
    if known is None:
        return {}
    if log.spec.action.agents > 1:
        sizes = log.spec.action.sizes
        return {
            name: dose_change(np.arange(size), np.asarray(log.actions[:, i]), acted[:, i, :size])
            for i, (name, size) in enumerate(zip(known.names, sizes, strict=True))
        }
    joint = JointActions(log.spec.action)
    numbers, policy = joint.numbers(log.actions), joint.probabilities(acted)
    return {name: dose_change(levels, numbers, policy) for name, levels in zip(known.names, known.levels, strict=True)}


def _continuous_doses(log: Transitions, acted: np.ndarray) -> dict[str, Sequence[DoseBin]]:
    size = log.spec.action.width
    return {
        name if size == 1 else f"{name} dose {d}": dose_change_continuous(
            np.asarray(log.actions[:, i, d]), acted[:, i, d]
        )
        for i, name in enumerate(maker_names(log.spec.action))
        for d in range(size)
    }
