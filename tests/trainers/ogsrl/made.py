"""Small logs with a known truth, and trainers of them."""

from dataclasses import replace
from typing import Any

import numpy as np
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.config import JobConfig
from refork.trainers.make import make_trainer

from tests.trainers.logs import shape_of

NAMES = ("noise", "o:SpO2")


def one_step(kind: str, count: int = 1200, seed: int = 0, actions: str = "discrete") -> Transitions:
    """Episodes of one decision in one of two situations: the more (0, 1, 2), the better, and the lower SpO2 after it.

    Reward = action; SpO2 after: 98, 94, 90. Action 2 was hardly ever logged in situation 1, where it is as good.
    Of states: 0 and 1 are situations, 2 + action what follows. Continuous: the same with doses from 0 to 2.
    """
    rng = np.random.default_rng(seed)
    situation = rng.integers(2, size=count)
    chosen = np.where(situation == 0, rng.integers(3, size=count), rng.integers(2, size=count))
    doses = chosen.astype(np.float32)
    if actions == "continuous":
        doses = (rng.random(count) * np.where(situation == 0, 2.0, 1.0)).astype(np.float32)
    before = np.stack([situation, np.full(count, 96.0)], 1)
    after = np.stack([situation, 98 - 4 * doses], 1)
    states = kind == "states"
    rows = np.stack([before, after], 1).reshape(-1, 2).astype(np.float32)
    numbers = np.stack([situation, 2 + chosen], 1).reshape(-1).astype(np.int32)
    action = (
        ActionSpec("discrete", (3,)) if actions == "discrete" else ActionSpec("continuous", (1,), (), (0.0,), (2.0,))
    )
    features = np.array([[0, 96], [1, 96], [0, 98], [0, 94], [0, 90]], np.float32)
    return Transitions(
        LogSpec("", ObservationSpec(kind, 5 if states else 2, NAMES), action, "dose"),  # type: ignore[arg-type]
        observations=numbers if states else rows,
        actions=chosen[:, None] if actions == "discrete" else doses[:, None, None],
        rewards=doses,
        terminated=np.ones(count, bool),
        truncated=np.zeros(count, bool),
        starts=np.arange(count + 1),
        patients=np.arange(count),
        behaviour=np.full(count, 0.5, np.float32),
        dt=np.ones(count, np.float32),
        state_features=features if states else None,
    )


def trainer_for(log: Transitions, seeds: int = 1, hidden: tuple[int, ...] = (32,), **settings: Any) -> Any:
    """An ogsrl trainer; on vectors standardised as a run would."""
    job = JobConfig.model_validate(
        {
            "env": {"id": "refork/Logs-v0"},
            "agent": {"kind": "q_networks", "options": {"hidden": list(hidden)}},
            "trainer": {"kind": "ogsrl", "seeds": seeds, "learning_rate": 0.01, "batch": 128} | settings,
        }
    )
    shape = shape_of(log)
    if log.spec.observation.kind == "vector":
        seen = np.asarray(log.observations)
        shape = replace(shape, shift=seen.mean(0), scale=seen.std(0))
    return make_trainer(job, shape)


def taught(
    log: Transitions, updates: int, shown: np.ndarray | None = None, **settings: Any
) -> tuple[Any, dict[str, float]]:
    """The trainer after its updates, and its last metrics."""
    trainer = trainer_for(log, **settings)
    shown = np.arange(len(log)) if shown is None else shown
    row: dict[str, float] = {}
    for update in range(updates):
        row = trainer.update(update, [LoggedExperience("train", log, shown, 0.0)])
    return trainer, row
