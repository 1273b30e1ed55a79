"""Estimators against exact values on a random tabular MDP: means within 4 standard errors, over 10,000 draws.

Unbiased for the advantage Q - V: vineppo; spo at the start of a segment; branpo at its forks when these do not depend
on returns; crr (tests/trainers/crr/test_tabular.py). Of the others this says what they estimate instead: rloo and
dr_grpo an advantage over V(s_0); gigpo's second part (1 - 1/n) of the advantage, n visits of the state; rtmc Q minus
its mean over the actions that the group took; treerl's local and tree_grpo's inner part (1 - 1/m) of the advantage at
a branch's own first step, m leaves compared. maxrl is exact in tests/trainers/test_advantages.py, cost_aware in
test_cost_aware.py, turn_credit moves credit only (test_turn_credit.py); grpo and the z-score of tree_grpo divide by a
deviation of the same returns and have no such mean.

Each estimate is compared with an expectation given what its group visited, and groups are independent, so a standard
error is that of sums over groups.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from refork.envs.forkable import InfraError
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import grpo_advantage, returns
from refork.trainers.estimators.continuations import continuation_values
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.estimators.tree import Tree

from tests.trainers.tabular_env import HORIZON, TabularEnv

GROUPS, SIZE = 2500, 4
ENV = TabularEnv()
Q, V = ENV.exact_q(), ENV.exact_values()
A = ENV.exact_advantages()
Found = Iterator[tuple[tuple[int, ...], float, float]]
"""(time, state, action), estimate, what it should be on average."""


def _groups(config: ForkConfig) -> list[TaskExperience]:
    env = TabularEnv()
    return [collect_group(env, env, GroupRequest("t", episode, 0, 0, SIZE), config) for episode in range(GROUPS)]


def _lossy(experience: TaskExperience, rng: np.random.Generator) -> TaskExperience:
    """A fifth of the trajectories without a judgement, whatever they returned."""

    def lost(t: Trajectory) -> Trajectory:
        return replace(t, outcome=InfraError("lost")) if rng.random() < 0.2 else t

    return replace(experience, mains=tuple(map(lost, experience.mains)), branches=tuple(map(lost, experience.branches)))


@pytest.fixture(scope="module")
def whole() -> list[TaskExperience]:
    """A continuation from every decision."""
    return _groups(ForkConfig(which="all", every=1, actions="policy"))


@pytest.fixture(scope="module")
def lossy(whole: list[TaskExperience]) -> list[TaskExperience]:
    rng = np.random.default_rng(0)
    return [_lossy(experience, rng) for experience in whole]


def _check(groups: list[TaskExperience], read: Callable[[TaskExperience], Found], draws: int = 10_000) -> None:
    """The sum of estimate - expectation is within 4 standard errors of 0, for each (time, state, action)."""
    sums: dict[tuple[int, ...], list[float]] = defaultdict(list)
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for experience in groups:
        of_group: dict[tuple[int, ...], float] = defaultdict(float)
        for key, estimate, expected in read(experience):
            of_group[key] += estimate - expected
            counts[key] += 1
        for key, value in of_group.items():
            sums[key].append(value)
    assert sum(counts.values()) >= draws
    often = [key for key in sums if counts[key] >= 200]
    assert len(often) >= 3
    for key in often:
        errors = np.array(sums[key])
        assert abs(errors.sum()) < 4 * (errors @ errors) ** 0.5 + 1e-9, key


def _mains(name: str, experience: TaskExperience, **options: object) -> Iterator[tuple[Trajectory, np.ndarray]]:
    credit = ESTIMATORS[name](experience, **options)
    return ((t, credit.values[t.key]) for t in experience.mains if t.value is not None)


def _key(trajectory: Trajectory, step: int) -> tuple[int, ...]:
    decision = trajectory.decisions[step]
    return (*decision.observation, decision.action)


def _at_segment_starts(name: str, every: int, **options: object) -> Callable[[TaskExperience], Found]:
    """A at each decision where a segment starts: at `every`-th ones whose state has a judged continuation."""

    def read(experience: TaskExperience) -> Found:
        values = continuation_values(experience)
        for main, advantages in _mains(name, experience, **options):
            for t in range(0, HORIZON, every):
                if main.decisions[t].state_id in values:
                    yield _key(main, t), advantages[t], A[_key(main, t)]

    return read


def _branpo(experience: TaskExperience) -> Found:
    """A at the fork, of the rollout's decision and of the branches' own first ones, where two suffixes were judged."""
    credit, tree = ESTIMATORS["branpo"](experience), Tree(experience)
    for main in experience.mains:
        for step in range(HORIZON):
            suffixes = tree.suffixes(main, step)
            for suffix in suffixes if len(suffixes) > 1 else []:
                at = step if suffix is main else 0
                yield _key(suffix, at), credit.values[suffix.key][at], A[_key(suffix, at)]


def _over_start(name: str, factor: Callable[[int], float]) -> Callable[[TaskExperience], Found]:
    """Q - V(s_0), times `factor` of the size of the group."""

    def read(experience: TaskExperience) -> Found:
        size = len(returns(experience.mains))
        for main, advantages in _mains(name, experience):
            for t in range(HORIZON) if size > 1 else ():
                yield _key(main, t), advantages[t], factor(size) * (Q[_key(main, t)] - V[0, 0])

    return read


def _visits(experience: TaskExperience) -> dict[str, list[tuple[int, ...]]]:
    """By state the decisions that judged rollouts made in it."""
    found: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for main in experience.mains:
        for t, decision in enumerate(main.decisions if main.value is not None else ()):
            found[decision.state_id].append(_key(main, t))
    return found


def _gigpo(experience: TaskExperience) -> Found:
    """Its second part: (1 - 1/n) A."""
    visits, group = _visits(experience), returns(experience.mains)
    for main, advantages in _mains("gigpo", experience):
        for t, decision in enumerate(main.decisions):
            share = 1 - 1 / len(visits[decision.state_id])
            yield _key(main, t), advantages[t] - (main.value - group.mean()), share * A[_key(main, t)]


def _rtmc(experience: TaskExperience) -> Found:
    """Q minus the mean of Q over the actions taken in the state, where it was met more than once."""
    visits = _visits(experience)
    for main, advantages in _mains("rtmc", experience, prior=0.0):
        for t, decision in enumerate(main.decisions):
            met = visits[decision.state_id]
            if len(met) > 1:
                yield _key(main, t), advantages[t], Q[_key(main, t)] - np.mean([Q[key] for key in met])


def _treerl(experience: TaskExperience) -> Found:
    """V(n) - V(parent) of a branch after the start: each of the m leaves below the parent continues the same state."""
    credit, tree, root = ESTIMATORS["treerl"](experience), Tree(experience), returns(experience.trajectories).mean()
    for branch in tree.leaves:
        if branch.origin is not None and branch.origin.step > 0:
            m = len(tree.below(tree.parent(branch.origin), branch.origin.step - 1))
            local = credit.values[branch.key][0] - (branch.value - root)
            yield _key(branch, 0), local, (1 - 1 / m) * A[_key(branch, 0)]


def _tree_grpo(experience: TaskExperience) -> Found:
    """R - mean of the tree of branches that left at the start: all m leaves of the tree continue it."""
    credit, tree, group = ESTIMATORS["tree_grpo"](experience), Tree(experience), returns(experience.trajectories)
    for branch in tree.leaves:
        if branch.origin is not None and branch.origin.step == 0:
            m = len(tree.below(tree.parent(branch.origin), -1))
            inner = credit.values[branch.key][0] - grpo_advantage(branch.value, group)
            yield _key(branch, 0), inner, (1 - 1 / m) * A[_key(branch, 0)]


READ = {
    "vineppo": _at_segment_starts("vineppo", 1),
    "spo": _at_segment_starts("spo", 2, segment=2),
    "branpo": _branpo,
    "rloo": _over_start("rloo", lambda n: 1.0),
    "dr_grpo": _over_start("dr_grpo", lambda n: 1 - 1 / n),
    "gigpo": _gigpo,
    "rtmc": _rtmc,
    "treerl": _treerl,
    "tree_grpo": _tree_grpo,
}


@pytest.mark.parametrize("name", READ)
def test_means_are_what_they_should_be(name: str, whole: list[TaskExperience]) -> None:
    _check(whole, READ[name])


@pytest.mark.parametrize("name", READ)
def test_what_was_lost_leaves_the_rest_unbiased(name: str, lossy: list[TaskExperience]) -> None:
    assert 0.15 < np.mean([t.value is None for e in lossy for t in e.trajectories]) < 0.25
    _check(lossy, READ[name], draws=6_000)


def test_the_check_sees_a_bias(whole: list[TaskExperience]) -> None:
    """One of a twentieth of the returns' range is found."""
    with pytest.raises(AssertionError, match="4 \\*"):
        _check(whole, lambda e: ((k, x + 0.05, y) for k, x, y in READ["vineppo"](e)))
