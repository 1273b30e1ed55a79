"""Small logs of every kind of action, for tests of trainers."""

import numpy as np
from refork.agents.q_networks import LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import LoggedExperience, Transitions

FEATURES, ACTIONS, DIMENSIONS, AGENTS, STATES = 3, 4, 2, 3, 10


def log_for(actions: str, episodes: int = 30, length: int = 6, seed: int = 0, observes: str = "vector") -> Transitions:
    """`actions`, `observes`: as in `OfflineConfig`. Every episode terminates but the last, which is cut."""
    rng = np.random.default_rng(seed)
    agents = AGENTS if actions.startswith("factored") else 1
    count = episodes * length
    if actions.endswith("discrete"):
        spec = ActionSpec("discrete", (ACTIONS,) * agents)
        taken = rng.integers(ACTIONS, size=(count, agents))
        behaviour = np.full(count, ACTIONS**-agents, np.float32)
    else:
        spec = ActionSpec("continuous", (DIMENSIONS,) * agents, low=(-1.0, 0.0), high=(1.0, 2.0))
        taken = (rng.random((count, agents, DIMENSIONS)) * 2 - [1, 0]).astype(np.float32)
        behaviour = np.full(count, 0.25**agents, np.float32)
    if observes == "vector":
        seen = ObservationSpec("vector", FEATURES)
        observations = rng.normal(size=(count + episodes, FEATURES)).astype(np.float32)
    else:
        seen = ObservationSpec("states", STATES)
        observations = rng.integers(STATES, size=count + episodes).astype(np.int32)
    ended = np.arange(count) % length == length - 1
    cut = np.arange(count) == count - 1
    return Transitions(
        LogSpec("", seen, spec, "units"),
        observations=observations,
        actions=taken,
        rewards=rng.normal(size=count).astype(np.float32),
        terminated=ended & ~cut,
        truncated=cut,
        starts=np.arange(episodes + 1) * length,
        patients=np.arange(episodes),
        behaviour=behaviour,
        dt=np.ones(count, np.float32),
    )


def shape_of(log: Transitions) -> LogShape:
    """As it would be told to networks, not standardised."""
    size = log.spec.observation.size if log.spec.observation.kind == "vector" else 0
    return LogShape(log.spec, np.zeros(size, np.float32), np.ones(size, np.float32), log.state_features)


def experience_of(log: Transitions) -> LoggedExperience:
    """All of it."""
    return LoggedExperience("train", log, np.arange(len(log)), float(log.returns(1.0).mean()))
