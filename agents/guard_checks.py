"""What a guard looks at before a recommendation becomes a decision. A check says why not, or nothing.

Texts are for clinicians: what was recommended, what is wrong with it, by which number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from refork.agents.density import Density, KernelDensity
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, Limit, LogSpec, column_number


@dataclass(frozen=True)
class Situation:
    """What is seen as a decision is made."""

    observation: np.ndarray
    """(1, ...): one row of observations."""
    features: np.ndarray
    """(F,): its named columns, in their own units; of a state what is known of it, (0,) if nothing."""
    allowed: np.ndarray | None
    """(1, 1, A), bool, or None: all."""


class Check(Protocol):
    """Asked with a discrete action's number, or with the doses (d,) of a continuous one."""

    def why_not(self, situation: Situation, action: np.ndarray) -> str | None:
        """None: nothing against it."""


@dataclass(frozen=True)
class InSupport:
    """Situation and action together must be like decisions of the training part (agents/density.py)."""

    density: Density

    def why_not(self, situation: Situation, action: np.ndarray) -> str | None:
        here, best = self._densities(situation, action)
        if here >= self.density.threshold:
            return None
        if best < self.density.threshold:
            return "this patient's situation is unlike those the policy was trained on"
        share = float(np.exp(here - self.density.threshold))
        return f"it is rarely or never given in situations like this one ({share:.2g} of the least density accepted)"

    def _densities(self, situation: Situation, action: np.ndarray) -> tuple[float, float]:
        """Of this action, and of the one with the most support; of doses the latter is not known: infinite."""
        if action.ndim == 0:
            found = self.density.of_actions(situation.observation)[0]
            return float(found[action]), float(found.max())
        assert isinstance(self.density, KernelDensity)
        return float(self.density.of_pairs(situation.observation, action[None])[0]), np.inf


@dataclass(frozen=True)
class NotRare:
    """Clinicians must choose a discrete action with at least this probability, as they were cloned."""

    clinician: Act
    least: float = 0.01

    def why_not(self, situation: Situation, action: np.ndarray) -> str | None:
        share = float(self.clinician(situation.observation, situation.allowed)[0, 0, action])
        if share >= self.least:
            return None
        return f"clinicians choose it in {100 * share:.2g} % of such situations (limit {100 * self.least:.2g} %)"


@dataclass(frozen=True)
class Rule:
    """While a column is beyond a limit, some actions are forbidden, or doses above a bound."""

    when: Limit
    forbidden: tuple[int, ...] = ()
    """Discrete actions."""
    most: Mapping[int, float] = field(default_factory=dict)
    """Continuous: largest dose by dimension."""
    because: str = ""
    """In a clinician's words."""

    def bound(self, spec: LogSpec) -> BoundRule:
        """Raises BadInput when the log has no such column, actions or doses: such a rule would never hold."""
        action = spec.action
        asked, other = (self.forbidden, self.most) if action.kind == "discrete" else (self.most, self.forbidden)
        if other or not asked or any(k not in range(action.width) for k in asked):
            what = "discrete actions in `forbidden`" if action.kind == "discrete" else "dimensions of doses in `most`"
            raise BadInput(f"rule while {self.when}: this log has {what}, numbered from 0 to {action.width - 1}")
        return BoundRule(self, column_number(spec.observation, self.when.column))


@dataclass(frozen=True)
class BoundRule:
    """A rule that knows where its column stands."""

    rule: Rule
    column: int

    def why_not(self, situation: Situation, action: np.ndarray) -> str | None:
        value = situation.features[self.column]
        if not self.rule.when.violated(value) or not self._forbids(action):
            return None
        because = f": {self.rule.because}" if self.rule.because else ""
        return f"it is not given while {self.rule.when} ({self.rule.when.column} is {value:.4g}){because}"

    def _forbids(self, action: np.ndarray) -> bool:
        if action.ndim == 0:
            return int(action) in self.rule.forbidden
        return any(action[dimension] > most for dimension, most in self.rule.most.items())
