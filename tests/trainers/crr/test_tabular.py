"""CRR's estimator against exact values on a random tabular MDP: means within 4 standard errors over 10,000 draws."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from refork.replay import fork_points
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group
from refork.replay.trajectory import TaskExperience
from refork.trainers.crr.advantages import CrrForm, crr_credit

from tests.trainers.tabular_env import ACTIONS, HORIZON, TabularEnv

GROUPS, SIZE = 2500, 4


def _tail(rollout: Any, group: Any) -> np.ndarray:
    return np.array([1.0, 2.0, 5.0])


def _experience(config: ForkConfig) -> Iterator[TaskExperience]:
    env = TabularEnv()
    for episode in range(GROUPS):
        yield collect_group(env, env, GroupRequest("t", episode, 0, 0, SIZE), config)


def _check(samples: dict[tuple[int, int, int], list[float]], expected: np.ndarray) -> None:
    assert sum(map(len, samples.values())) >= 10_000
    checked = 0
    for key, values in samples.items():
        if len(values) >= 200:
            error = np.std(values) / len(values) ** 0.5
            assert abs(np.mean(values) - expected[key]) < 4 * error + 1e-12, key
            checked += 1
    assert checked >= 15


@pytest.fixture(scope="module")
def forked_everywhere() -> list[TaskExperience]:
    return list(_experience(ForkConfig(which="all", rule="uniform", forks=HORIZON)))


def _taken(experience: TaskExperience, form: CrrForm) -> Iterator[tuple[tuple[int, int, int], float]]:
    credit = crr_credit(experience, form)
    for trajectory in experience.mains:
        for decision, value in zip(trajectory.decisions, credit.values[trajectory.key], strict=True):
            yield (*decision.observation, decision.action), value


def test_the_scaled_differential_is_the_advantage(forked_everywhere: list[TaskExperience]) -> None:
    samples = defaultdict(list)
    for experience in forked_everywhere:
        for key, value in _taken(experience, CrrForm(outcome="none")):
            samples[key].append(value)
    _check(samples, TabularEnv().exact_advantages())


def test_weighted_selection_undoes_the_choice_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """One point a rollout, late ones preferred: weighted, a step's mean is its advantage over the number of steps."""
    monkeypatch.setitem(fork_points.RULES, "tail", _tail)
    samples = defaultdict(list)
    form = CrrForm(outcome="none", selection="weighted", selection_clip=100.0)
    for experience in _experience(ForkConfig(which="all", rule="tail", forks=1)):
        for key, value in _taken(experience, form):
            samples[key].append(value)
    _check(samples, TabularEnv().exact_advantages() / HORIZON)


def test_the_importance_weighted_mirror_points_along_the_policy_gradient(
    forked_everywhere: list[TaskExperience],
) -> None:
    """Mirrored values with weight 1 - pi(a), summed by the alternative a': pi(a') A(a') per visit of the state."""
    env = TabularEnv()
    sums: dict[tuple[int, int], list[np.ndarray]] = defaultdict(list)
    form = CrrForm(outcome="none", mirror="importance", branch_steps=False)
    for experience in forked_everywhere:
        credit = crr_credit(experience, form)
        for branch in experience.branches:
            first = branch.decisions[0]
            row = np.zeros(ACTIONS)
            row[first.action] = credit.values[branch.key][0]
            sums[first.observation].append(row)
    expected = env.policy * env.exact_advantages()
    for state, rows in sums.items():
        error = np.std(rows, axis=0) / len(rows) ** 0.5
        assert (np.abs(np.mean(rows, axis=0) - expected[state]) < 4 * error + 1e-12).all(), state
