"""Safety costs from physiology: limits on named columns, and what the logged decisions themselves cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.q_networks import LogShape
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Limit, column_number
from refork.replay.support import watched
from refork.replay.transitions import Transitions
from refork.trainers.ogsrl.config import SafetyLimit
from torch import Tensor


def limits_of(shape: LogShape, safety: Sequence[SafetyLimit] | None) -> list[tuple[Limit, float | None]]:
    """Limits with their budgets. Raises BadInput naming a column that the log does not have."""
    if safety is None:
        return [(limit, None) for limit in watched(shape)]
    found = [(_limit(asked), asked.budget) for asked in safety]
    for limit, _budget in found:
        column_number(shape.spec.observation, limit.column)
        if shape.spec.observation.kind == "states" and shape.state_features is None:
            raise BadInput(f"trainer.safety: column {limit.column!r}: this log of states has no features of its states")
    return found


def _limit(asked: SafetyLimit) -> Limit:
    if asked.below is not None:
        return Limit(asked.column, "below", asked.below)
    assert asked.above is not None
    return Limit(asked.column, "above", asked.above)


class SafetyCosts:
    """1 for every limit that an observation violates, else 0: (S, B, ...) -> (S, B, J)."""

    def __init__(self, shape: LogShape, limits: Sequence[Limit]) -> None:
        self._limits = [(limit, column_number(shape.spec.observation, limit.column)) for limit in limits]
        features = shape.state_features if shape.spec.observation.kind == "states" else None
        self._features = None if features is None else torch.from_numpy(features)

    def of(self, observations: Tensor) -> Tensor:
        """Of the observations that decisions led to, in their own units."""
        if not self._limits:
            return torch.zeros((*observations.shape[:2], 0))
        seen = observations if self._features is None else self._features[observations]
        parts = [limit.violated(seen[..., column]) for limit, column in self._limits]
        return torch.stack(parts, -1).float()


def discounted_shares(log: Transitions, transitions: np.ndarray, costs: np.ndarray, discount: float) -> np.ndarray:
    """(J,): mean over transitions (K,) of (1 - g) sum_t g^t c_t to the end of their episodes, g = `discount`.

    `transitions` ascend; `costs` (K, J): of each. A gap within an episode counts as its end: nothing else is read.
    """
    follows = (np.diff(transitions) == 1) & (np.diff(log.episode[transitions]) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~follows]))
    lengths = np.diff(np.append(first, len(transitions)))
    values = (1 - discount) * costs.astype(np.float64)
    for step in range(int(lengths.max()) - 2, -1, -1):
        here = first[lengths > step + 1] + step
        values[here] += discount * values[here + 1]
    return values.mean(0)
