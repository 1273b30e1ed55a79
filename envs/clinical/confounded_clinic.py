"""A clinic of one choice, small enough to solve by hand, in which hidden frailty misleads whoever believes the log.

Half of the patients are frail; the log does not show it. At each of `steps` visits a patient is in one of three
conditions, drawn anew, and gets the usual treatment or the strong one. The usual one helps with chance .5; the strong
one by condition and frailty, see HELPS. Clinicians see frailty: in the conditions `misleading` and `promising` the
odds that the robust get the strong treatment are `strength` times those of the frail; in `plain` both get it alike.
Truly the strong treatment is right only in `promising`: on average it helps .45, .65, .45.
"""

from __future__ import annotations

import numpy as np
from refork.envs.clinical.behaviour import confounded
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogArrays, LogSpec, ObservationSpec, Truth

ENV_ID = "refork/ConfoundedClinic-v0"
CONDITIONS = ("misleading", "promising", "plain")
HELPS = np.array([[[0.5, 0.75], [0.5, 0.85], [0.5, 0.6]], [[0.5, 0.15], [0.5, 0.45], [0.5, 0.3]]])
"""(frailty, condition, treatment): chance that a visit goes well."""
CONFOUNDED = np.array([True, True, False])
STRONG = np.array([False, True])


class ConfoundedClinic:
    """The simulator (envs/log_spec.py). A value is how many of the visits are expected to go well."""

    behaviours = ("confounded", "random")

    def __init__(self, strength: float = 5.0, steps: int = 8) -> None:
        """Raises BadInput for a strength below 1 or no steps."""
        if strength < 1 or steps < 1:
            raise BadInput(f"strength and steps: expected 1 or more, got {strength} and {steps}")
        self.strength, self.steps = strength, steps
        self.spec = LogSpec(
            ENV_ID,
            ObservationSpec("states", len(CONDITIONS), CONDITIONS),
            ActionSpec("discrete", (2,), ("treatment",)),
            reward="1 when a visit goes well, else 0",
            horizon=steps,
        )

    def table(self, behaviour: str) -> np.ndarray:
        """(frailty, condition, treatment): probabilities; on average over frailty half get the strong treatment."""
        even = np.full((len(CONDITIONS), 2), 0.5)
        if behaviour == "random":
            return np.stack([even, even])
        if behaviour != "confounded":
            raise BadInput(f"no behaviour {behaviour!r} of {ENV_ID}; there are: {', '.join(self.behaviours)}")
        parts = confounded(even, ~STRONG, self.strength, np.full(len(CONDITIONS), 0.5))
        split = np.stack([parts.without, parts.having])
        return np.where(CONFOUNDED[:, None], split, even)

    def policy(self, behaviour: str) -> Act | None:
        """None when it sees frailty."""
        table = self.table(behaviour)
        return (lambda states, _allowed: table[0][states][:, None]) if np.allclose(*table) else None

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        table, rng, t = self.table(behaviour), np.random.default_rng(seed), self.steps
        frail = rng.integers(2, size=(episodes, 1))
        conditions = rng.integers(len(CONDITIONS), size=(episodes, t + 1))
        strong = (rng.random((episodes, t)) < table[frail, conditions[:, :t], 1]).astype(np.int64)
        well = rng.random((episodes, t)) < HELPS[frail, conditions[:, :t], strong]
        last = np.arange(episodes * t) % t == t - 1
        return LogArrays(
            self.spec,
            observations=conditions.reshape(-1).astype(np.int32),
            actions=strong.reshape(-1, 1),
            rewards=well.reshape(-1).astype(np.float32),
            terminated=last,
            truncated=np.zeros(len(last), bool),
            starts=np.arange(episodes + 1) * t,
            patients=np.arange(episodes),
            behaviour=table[frail, conditions[:, :t], strong].reshape(-1).astype(np.float32),
            dt=np.ones(len(last), np.float32),
            state_features=np.eye(len(CONDITIONS), dtype=np.float32),
        )

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """Exact."""
        return self._exact(np.stack([act(np.arange(len(CONDITIONS)), None)[:, 0]] * 2))

    def behaviour_truth(self, behaviour: str) -> Truth:
        """What a behaviour is worth, also when it sees frailty."""
        return self._exact(self.table(behaviour))

    def _exact(self, table: np.ndarray) -> Truth:
        return Truth.solved(self.steps * float((table * HELPS).sum(-1).mean()))
