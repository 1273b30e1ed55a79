"""Policy, guard and fallback as one object, for the moment of a decision; numpy only.

>>> import numpy as np
>>> from refork.agents.density import fit_density
>>> from refork.agents.guard import GuardedPolicy
>>> from refork.agents.guard_checks import InSupport
>>> from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
>>> spec = LogSpec("", ObservationSpec("states", 2), ActionSpec("discrete", (3,), ("dose",)), "survival")
>>> states, doses = np.array([0] * 50 + [1] * 50), np.array([0] * 50 + [1] * 50)
>>> guard = InSupport(fit_density(spec, states, doses[:, None], percentile=5.0, most=100, seed=0))
>>> always_two = lambda states, allowed: np.eye(3)[np.full(len(states), 2)][:, None]
>>> clinician = lambda states, allowed: np.eye(3)[states][:, None]
>>> decision = GuardedPolicy(spec, always_two, [guard], clinician).act(history=[0, 1])
>>> decision.action, decision.vetoed
(1, True)
>>> print(decision.reason)
dose 2 vetoed: it is rarely or never given in situations like this one (0 of the least density accepted); clinicians' \
usual dose 1 instead
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from refork.agents.guard_checks import BoundRule, Check, Situation
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, LogSpec

Dose = int | tuple[float, ...]
"""A discrete action's number, or the doses of a continuous one."""


@dataclass(frozen=True)
class Decision:
    """What is done, and why."""

    action: Dose
    reason: str
    vetoed: bool
    recommended: Dose
    """What the policy alone would do."""


@dataclass(frozen=True)
class Veto:
    """One line of the log of vetoes."""

    decision: int
    """How many decisions were made before."""
    observation: list[float]
    """The situation, as its named columns; of a bare state its number."""
    recommended: Dose
    action: Dose
    reason: str
    about: Mapping[str, str | float]
    """Whose decision it was and when, as the caller names it; {} if it does not."""

    def to_json(self) -> dict[str, Any]:
        """JSON values: what of the situation was no number is null."""
        return asdict(self) | {"observation": [x if np.isfinite(x) else None for x in self.observation]}


class GuardedPolicy:
    """Does what the policy recommends unless a check of the guard says why not; then what the clinician would do: the
    order as it was given, or the likeliest that no rule forbids.

    For one decision maker. `vetoes` holds every veto; `on_veto` is told each as it happens (`cluster/guarded.py` writes
    them to a file); `named`: what discrete actions are called, () for their numbers; `first`: the log was filled
    forward, so that what is missing now is what was seen last, and before that these values; None: it was not. Raises
    BadInput for a log of several decision makers, and for rules where columns have no values.
    """

    def __init__(
        self,
        spec: LogSpec,
        policy: Act,
        guard: Sequence[Check],
        fallback: Act | None,
        *,
        named: Sequence[str] = (),
        state_features: np.ndarray | None = None,
        first: Mapping[str, float] | None = None,
        on_veto: Callable[[Veto], None] = lambda veto: None,
    ) -> None:
        if spec.action.agents != 1 or spec.observation.per_agent:
            raise BadInput("a guarded policy is defined for one decision maker with one observation")
        self._rules = tuple(check for check in guard if isinstance(check, BoundRule))
        if self._rules and spec.observation.kind == "states" and state_features is None:
            raise BadInput("rules are on columns, and nothing is known of the states of this log but their numbers")
        self.spec, self.policy, self.guard, self.fallback = spec, policy, tuple(guard), fallback
        self.vetoes: list[Veto] = []
        self._names, self._features, self._on_veto, self._made = tuple(named), state_features, on_veto, 0
        self._first = first

    def act(
        self,
        history: Sequence[Any] | np.ndarray,
        logged: Dose | None = None,
        allowed: np.ndarray | None = None,
        about: Mapping[str, str | float] | None = None,
    ) -> Decision:
        """Decide in the last of the observations of `history` (the policies here look at no more).

        An observation is what its columns hold, in the order of the log's, or {column: value}; None and what is left
        out are missing.
        `logged`: what the clinician ordered, if it is known: it is the fallback then. `allowed` (A,): actions that can
        be taken. `about`: what a veto's line in the log should name, e.g. {"patient": "p17", "time": 8.0}.
        Raises BadInput for an empty history, an observation of another shape, a `logged` that is no action, and where
        `logged` is needed to fall back to: for values that are not numbers, or when nothing else is left.
        """
        situation = self._situation(history, allowed)
        logged = None if logged is None else self._order(logged)
        number, self._made = self._made, self._made + 1
        if (missing := self._missing(situation)) is not None:
            if logged is None:
                raise BadInput(f"{missing}; give the clinician's order as `logged`, or a complete observation")
            text = f"no recommendation: {missing}; the clinician's order"
            return self._veto(Veto(number, _shown(situation), logged, logged, text, dict(about or {})))
        recommended = self._likeliest(self.policy, situation)[0]
        found = (check.why_not(situation, np.asarray(recommended)) for check in self.guard)
        reasons = [why for why in found if why is not None]
        if not reasons:
            return Decision(
                recommended, f"{self._named(recommended)} recommended, nothing against it", False, recommended
            )
        action, whose = self._instead(situation, logged)
        text = f"{self._named(recommended)} vetoed: {'; '.join(reasons)}; {whose} {self._named(action)} instead"
        return self._veto(Veto(number, _shown(situation), recommended, action, text, dict(about or {})))

    def _situation(self, history: Sequence[Any] | np.ndarray, allowed: np.ndarray | None) -> Situation:
        if not len(history):
            raise BadInput("history: it has no observation; give at least the current one")
        spec = self.spec.observation
        try:
            seen = self._seen(history) if spec.kind == "vector" else np.asarray(history[-1], np.int64)
        except BadInput:
            raise
        except (TypeError, ValueError) as error:
            raise BadInput(f"history: an observation is of numbers: {error}") from error
        observation = seen[None]
        mask = None if allowed is None else np.asarray(allowed, bool)[None, None]
        if mask is not None and (mask.shape != (1, 1, self.spec.action.width) or not mask.any()):
            raise BadInput(f"allowed: expected one of {self.spec.action.width} actions at least, got {allowed!r}")
        if spec.kind == "vector":
            return Situation(observation.astype(np.float32), observation[0], mask)
        if observation.shape != (1,) or not 0 <= int(observation[0]) < spec.size:
            raise BadInput(f"history: an observation is a state from 0 to {spec.size - 1}, got {history[-1]!r}")
        known = np.zeros(0) if self._features is None else self._features[int(observation[0])]
        return Situation(observation, known, mask)

    def _seen(self, history: Sequence[Any] | np.ndarray) -> np.ndarray:
        """The last observation, filled as the log was; NaN where a value is missing all the same."""
        observation = self._columns(history[-1])
        if self._first is None:
            return observation
        for earlier in reversed([self._columns(row) for row in history[:-1]] if np.isnan(observation).any() else []):
            observation = np.where(np.isnan(observation), earlier, observation)
        return np.where(np.isnan(observation), self._columns(self._first), observation)

    def _columns(self, row: Any) -> np.ndarray:
        """(columns,), float64, in the order of the log's."""
        size, names = self.spec.observation.size, [name.removeprefix("o:") for name in self.spec.observation.names]
        if not isinstance(row, Mapping):
            found = np.asarray(row, np.float64)
            if found.shape != (size,):
                raise BadInput(f"history: an observation has {size} columns, got shape {found.shape}")
            return found
        given = {str(name).removeprefix("o:"): value for name, value in row.items()}
        if unknown := [name for name in given if name not in names]:
            near = get_close_matches(unknown[0].lower(), [name.lower() for name in names], 1)
            meant = [name for name in names if name.lower() in near]
            guess = f"; did you mean {meant[0]}?" if meant else f"; there are: {', '.join(names)}"
            raise BadInput(f"history: the log has no column {unknown[0]!r}{guess}")
        return np.array([np.nan if given.get(name) is None else given[name] for name in names], np.float64)

    def _missing(self, situation: Situation) -> str | None:
        bad = np.flatnonzero(~np.isfinite(situation.features))
        if not len(bad):
            return None
        names = self.spec.observation.names
        return "not a number: " + ", ".join(names[k] if k < len(names) else f"column {k}" for k in bad)

    def _order(self, logged: Any) -> Dose:
        action, given = self.spec.action, np.asarray(logged)
        if action.kind == "continuous":
            if given.shape != (action.width,) or not np.isfinite(given).all():
                raise BadInput(f"logged: an action is {action.width} doses, got {logged!r}")
            return tuple(float(dose) for dose in given)
        if given.shape != () or given not in range(action.width):
            raise BadInput(f"logged: an action is a number from 0 to {action.width - 1}, got {logged!r}")
        return int(given)

    def _likeliest(self, act: Act, situation: Situation) -> list[Dose]:
        """Actions of some probability, the greatest first; or the doses alone."""
        found = act(situation.observation, situation.allowed)[0, 0]
        if self.spec.action.kind == "discrete":
            return [int(k) for k in np.argsort(-found, kind="stable") if found[k] > 0]
        return [tuple(float(dose) for dose in found)]

    def _instead(self, situation: Situation, logged: Dose | None) -> tuple[Dose, str]:
        if logged is not None:
            return logged, "the clinician's order"
        if self.fallback is None:
            raise BadInput(
                "the recommendation was vetoed and there is no fallback; give the clinician's order as `logged`"
            )
        for action in self._likeliest(self.fallback, situation):
            if not self._forbidden(situation, action):
                return action, "clinicians' usual"
        raise BadInput("rules forbid what clinicians would do as well; give the clinician's order as `logged`")

    def _forbidden(self, situation: Situation, action: Dose) -> bool:
        return any(rule.why_not(situation, np.asarray(action)) is not None for rule in self._rules)

    def _named(self, action: Dose) -> str:
        if isinstance(action, int) and self._names:
            return self._names[action]
        name = self.spec.action.names[0] if self.spec.action.names else "action"
        return f"{name} {action if isinstance(action, int) else ', '.join(f'{dose:.4g}' for dose in action)}"

    def _veto(self, veto: Veto) -> Decision:
        self.vetoes.append(veto)
        self._on_veto(veto)
        return Decision(veto.action, veto.reason, True, veto.recommended)


def _shown(situation: Situation) -> list[float]:
    """Its named columns; of a bare state its number."""
    return [float(x) for x in (situation.features if len(situation.features) else situation.observation)]
