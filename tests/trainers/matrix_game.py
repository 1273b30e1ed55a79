"""A cooperative game of one move, logged: what trainers of several decision makers should find in it is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
from refork.agents.log_policy import LogPolicy
from refork.agents.q_networks import LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import Transitions
from refork.trainers.config import JobConfig
from refork.trainers.make import make_trainer

from tests.trainers.logs import experience_of

DISCRETE = ActionSpec("discrete", (3, 3))
CONTINUOUS = ActionSpec("continuous", (1, 1), low=(-1.0,), high=(1.0,))


def game(action: ActionSpec, actions: np.ndarray, reward: Callable[[np.ndarray], np.ndarray]) -> Transitions:
    """One episode of one move for each row of `actions` (N, 2) or (N, 2, 1)."""
    count = len(actions)
    return Transitions(
        LogSpec("", ObservationSpec("vector", 1), action, "units"),
        observations=np.ones((2 * count, 1), np.float32),
        actions=actions if action.kind == "discrete" else actions.astype(np.float32),
        rewards=reward(actions).astype(np.float32),
        terminated=np.ones(count, bool),
        truncated=np.zeros(count, bool),
        starts=np.arange(count + 1),
        patients=np.arange(count),
        behaviour=np.full(count, np.nan, np.float32),
        dt=np.ones(count, np.float32),
    )


def learnt(log: Transitions, steps: int = 300, **trainer: Any) -> np.ndarray:
    """(seeds, 2, width): what each decision maker does after `steps` gradient steps."""
    settings = {"seeds": 3, "steps_per_update": steps, "batch": 64, "learning_rate": 0.01} | trainer
    agent = {"kind": "q_networks", "options": {"hidden": [16]}}
    job = JobConfig.model_validate({"env": {"id": "refork/Logs-v0"}, "agent": agent, "trainer": settings})
    made = make_trainer(job, LogShape(log.spec, np.zeros(1, np.float32), np.ones(1, np.float32)))
    made.update(0, [experience_of(log)])
    policy = LogPolicy(log.spec, made.weights(), settings["seeds"])
    return np.concatenate([policy.member(s)(np.ones((1, 1), np.float32)) for s in range(settings["seeds"])])
