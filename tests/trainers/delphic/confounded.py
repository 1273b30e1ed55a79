"""A confounded clinic of two actions, small enough to solve by hand.

z is 1 in half of the patients (frail) and fixed for the episode; it is not in the log. At each of `STEPS` steps the
outcome of action 1 is 1 with chance .5, of action 0 with chance .4, less .3 if frail. Frail patients are given action 0
with odds `gamma`, others action 1: then the log says that action 1 is far better than it is.
With `helps = -.1` action 1 is truly the worse one, but looks better.
"""

import numpy as np
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import Transitions

STEPS = 8
BASE, FRAIL = 0.6, 0.4


def log_of(gamma: float, episodes: int, helps: float = -0.1, seed: int = 0) -> Transitions:
    """One state; `gamma` = 1: not confounded."""
    rng = np.random.default_rng(seed)
    frail = rng.random((episodes, 1)) < 0.5
    chance = np.where(frail, 1 / (1 + gamma), gamma / (1 + gamma))
    actions = (rng.random((episodes, STEPS)) < chance).astype(np.int64)
    outcome = rng.random((episodes, STEPS)) < BASE - FRAIL * frail + helps * actions
    count = episodes * STEPS
    return Transitions(
        LogSpec("", ObservationSpec("vector", 1), ActionSpec("discrete", (2,)), "1 when the patient does well"),
        observations=np.ones((count + episodes, 1), np.float32),
        actions=actions.reshape(-1, 1),
        rewards=outcome.reshape(-1).astype(np.float32),
        terminated=np.ones(count, bool) & (np.arange(count) % STEPS == STEPS - 1),
        truncated=np.zeros(count, bool),
        starts=np.arange(episodes + 1) * STEPS,
        patients=np.arange(episodes),
        behaviour=np.full(count, np.nan, np.float32),
        dt=np.ones(count, np.float32),
    )


def naive_gap(gamma: float, helps: float = -0.1) -> float:
    """E(r | a = 1) - E(r | a = 0): what averages of the log say that action 1 adds."""
    frail_given_1, frail_given_0 = 1 / (1 + gamma), gamma / (1 + gamma)
    return helps - FRAIL * (frail_given_1 - frail_given_0)
