"""From the courses of many patients, padded to the longest, to a contiguous log of states."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.clinical.factored import apart
from refork.envs.log_spec import LogArrays, LogSpec


@dataclass(frozen=True)
class Courses:
    """E patients who were played for up to T steps."""

    states: np.ndarray
    """(E, T + 1), int: the state before each step, and what the last one led to; then anything."""
    actions: np.ndarray
    """(E, T), int: joint actions."""
    lengths: np.ndarray
    """(E,): steps of each."""


def log_of(
    spec: LogSpec,
    courses: Courses,
    policy: np.ndarray,
    rewards: np.ndarray,
    ends: np.ndarray,
    shown: np.ndarray,
    features: np.ndarray,
) -> LogArrays:
    """`policy` (S, joint actions): who acted; `rewards`, `ends`, `shown` (S,): reward of entering a state, whether it
    ends the episode, and the number under which it is observed; `features` (numbers, F).

    The last step of an episode that did not reach an end is truncated.
    """
    steps, rows = (np.arange(n) for n in (courses.actions.shape[1], courses.states.shape[1]))
    going, seen = steps < courses.lengths[:, None], rows <= courses.lengths[:, None]
    chosen, before, after = courses.actions[going], courses.states[:, :-1][going], courses.states[:, 1:][going]
    starts = np.concatenate([[0], np.cumsum(courses.lengths)])
    last = np.zeros(len(chosen), bool)
    last[starts[1:] - 1] = True
    return LogArrays(
        spec,
        observations=shown[courses.states[seen]].astype(np.int32),
        actions=apart(chosen, spec.action.sizes),
        rewards=rewards[after].astype(np.float32),
        terminated=ends[after],
        truncated=last & ~ends[after],
        starts=starts,
        patients=np.arange(len(courses.lengths)),
        behaviour=policy[before, chosen].astype(np.float32),
        dt=np.ones(len(chosen), np.float32),
        state_features=features,
    )
