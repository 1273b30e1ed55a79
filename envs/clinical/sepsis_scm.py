"""The sepsis structural causal model as a simulator (envs/log_spec.py): logs of states, policies worth exactly.

What is hidden (diabetes, glucose) is left out of the number of the observed state. The policy of the `confounded`
behaviour depends on the diabetes that the log hides; `strength` is by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from refork.envs.clinical.behaviour import confounded, marginal, softened
from refork.envs.clinical.factored import joint, product_of
from refork.envs.clinical.sepsis_scm_exact import HALF, best_policy, exact_model
from refork.envs.clinical.sepsis_scm_rules import ACTIONS, CHANNELS, DIABETIC, FLAGS, HORIZON, STATES, VITALS
from refork.envs.clinical.sepsis_scm_sampling import draw_noise, draw_starts, play
from refork.envs.clinical.states_log import Courses, log_of
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogArrays, LogSpec, ObservationSpec, Truth

ENV_ID = "refork/SepsisSCM-v0"
PARTS = {"diabetes": 2, **VITALS, **dict.fromkeys(FLAGS, 2)}
"""What a state is made of, in the order of numbering."""
FAVOURED = (np.arange(ACTIONS) & 1).astype(bool)
"""Actions with a vasopressor: what the confounded behaviour gives to patients with diabetes more often."""
AT_ONCE = 8192
"""Patients played at once: their noise takes 17 MB."""


class SepsisScm:
    """Values are expected returns of 20 steps; a policy that only sees what the log shows."""

    behaviours = ("softened", "random", "never_treat", "optimal", "confounded")

    def __init__(
        self,
        hide: Sequence[str] = ("diabetes",),
        published_glucose: bool = False,
        strength: float = 1.0,
        softness: float = 0.05,
        clinician_softness: float = 0.3,
        factored: bool = False,
        gamma: float = 1.0,
    ) -> None:
        """`hide`: of diabetes and glucose; `published_glucose`: keep the published code's mistake in glucose.

        `strength`: how many times as high the odds of a vasopressor are for patients with diabetes under the
        `confounded` behaviour, whose average over them is the optimal policy softened by `clinician_softness` as seen
        in the log; `softness`: of the `softened` behaviour; `factored`: antibiotics, ventilation and vasopressor are
        three decision makers; `gamma`: discount of values. Raises BadInput.
        """
        _check(hide, strength, softness, clinician_softness, gamma)
        self._published, self._strength = published_glucose, strength
        self._softness, self._clinician_softness = softness, clinician_softness
        self.model = exact_model(published_glucose)
        self.shown, self.features, names = observed(hide)
        self.spec = LogSpec(
            ENV_ID,
            ObservationSpec("states", len(self.features), names),
            ActionSpec("discrete", (2, 2, 2), CHANNELS)
            if factored
            else ActionSpec("discrete", (ACTIONS,), ("regimen",)),
            reward="1 on discharge, -1 on death, else 0",
            horizon=HORIZON,
            gamma=gamma,
        )

    def table(self, behaviour: str) -> np.ndarray:
        """(1440, 8): what that behaviour does in every full state."""
        optimal = best_policy(self._published)
        match behaviour:
            case "random":
                return np.full((STATES, ACTIONS), 1 / ACTIONS)
            case "never_treat":
                return np.broadcast_to(np.eye(ACTIONS)[0], (STATES, ACTIONS))
            case "optimal":
                return optimal
            case "softened":
                return softened(optimal, self._softness)
            case "confounded":
                return self._confounded
        raise BadInput(f"no behaviour {behaviour!r} of {ENV_ID}; there are: {', '.join(self.behaviours)}")

    @cached_property
    def _confounded(self) -> np.ndarray:
        """The share of diabetes in an observed state is what this very policy leads to: its fixed point."""
        clinician = softened(best_policy(self._published), self._clinician_softness)
        base = marginal(clinician, self.model.visits(clinician).sum(0), self.shown, len(self.features))
        policy = base[self.shown]
        for _ in range(100):
            before = policy
            parts = confounded(base, FAVOURED, self._strength, self._diabetic_share(policy))
            policy = np.concatenate([parts.without[self.shown[:HALF]], parts.having[self.shown[HALF:]]])
            if np.abs(policy - before).max() < 1e-12:
                break
        return policy

    def _diabetic_share(self, policy: np.ndarray) -> np.ndarray:
        """(states observed,): of the visits under `policy`; the population's where there are none."""
        visits = self.model.visits(policy).sum(0)
        total = np.bincount(self.shown, visits, len(self.features))
        having = np.bincount(self.shown[HALF:], visits[HALF:], len(self.features))
        return np.where(total > 0, having / np.where(total > 0, total, 1), DIABETIC)

    def policy(self, behaviour: str) -> Act | None:
        """None when it sees what the log hides, or its decision makers don't choose independently."""
        table = self.table(behaviour)
        seen = np.zeros((len(self.features), ACTIONS))
        seen[self.shown] = table
        shares = product_of(seen, self.spec.action.sizes)
        if shares is None or not np.allclose(seen[self.shown], table, atol=1e-9):
            return None
        return lambda states, _allowed: shares[states]

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        policy, rng = self.table(behaviour), np.random.default_rng(seed)
        parts = [self._play(policy, min(AT_ONCE, episodes - k), rng) for k in range(0, episodes, AT_ONCE)]
        courses = Courses(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("states", "actions", "lengths")))
        return log_of(self.spec, courses, policy, self.model.rewards, self.model.ends, self.shown, self.features)

    def _play(self, policy: np.ndarray, patients: int, rng: np.random.Generator) -> Courses:
        starts, noise = draw_starts(rng, patients), draw_noise(rng, HORIZON, patients)
        return play(starts, policy, noise, rng.random((HORIZON, patients)), self._published)

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """Exact: `act` is asked for every observed state, and all full states are propagated."""
        shares = act(np.arange(len(self.features)), None)
        return self._exact(joint(shares, self.spec.action.sizes)[self.shown])

    def behaviour_truth(self, behaviour: str) -> Truth:
        """What a behaviour is worth, also when it sees more than the log shows."""
        return self._exact(self.table(behaviour))

    def _exact(self, table: np.ndarray) -> Truth:
        return Truth.solved(self.model.value(table, self.spec.gamma))


def _check(hide: Sequence[str], strength: float, softness: float, clinician_softness: float, gamma: float) -> None:
    if unknown := [name for name in hide if name not in ("diabetes", "glucose")]:
        raise BadInput(f"hide: diabetes and glucose can be hidden, not {', '.join(map(str, unknown))}")
    if not 1 <= strength < np.inf:
        raise BadInput(f"strength: expected 1 or more, got {strength}")
    for name, share in (("softness", softness), ("clinician_softness", clinician_softness)):
        if not 0 <= share <= 1:
            raise BadInput(f"{name}: expected a share from 0 to 1, got {share}")
    if not 0 < gamma <= 1:
        raise BadInput(f"gamma: expected above 0, at most 1, got {gamma}")


def observed(hide: Sequence[str]) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """What an observer sees of the full states when parts are hidden.

    Returns the number of the observed state of each full one (1440,), the level of each part that is shown for each
    observed state (count, parts), and the names of these parts.
    """
    full = np.stack(np.unravel_index(np.arange(STATES), tuple(PARTS.values())), -1)
    kept = [i for i, name in enumerate(PARTS) if name not in hide]
    sizes = tuple(size for name, size in PARTS.items() if name not in hide)
    shown = np.ravel_multi_index(tuple(full[:, kept].T), sizes)
    seen = np.stack(np.unravel_index(np.arange(int(np.prod(sizes))), sizes), -1)
    return shown, seen.astype(np.float32), tuple(name for name in PARTS if name not in hide)
