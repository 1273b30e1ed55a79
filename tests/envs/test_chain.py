"""The chain: exact success against play, forks, the conformance of a ForkableEnv."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from refork.envs.chain import FEATURES, OPTIONS, START, ChainEnv, exact_success, make_task, make_tasks
from refork.envs.forkable import ForkableEnv, Reward, StateMismatch, StateRef


def _softmax(logits: np.ndarray) -> np.ndarray:
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exp / exp.sum(-1, keepdims=True)


def test_it_is_a_gymnasium_environment_and_forkable(recwarn: pytest.WarningsRecorder) -> None:
    check_env(ChainEnv("chain-1"), skip_render_check=True)
    assert [str(w.message) for w in recwarn] == []
    assert isinstance(ChainEnv(), ForkableEnv)
    assert isinstance(ChainEnv(), gym.Env)
    assert len(ChainEnv.feature_names) == FEATURES


def test_a_task_is_its_name() -> None:
    one, again, other = make_task("chain-3"), make_task("chain-3"), make_task("chain-4")
    assert (one.features == again.features).all()
    assert not (one.features == other.features).all()


@pytest.mark.parametrize("name", ["chain", "chain-", "chain-x", "link-3", "chain--3"])
def test_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected 'chain-NUMBER'"):
        ChainEnv(name)


def test_exact_success_is_the_sum_over_all_ways_to_play() -> None:
    task = make_task("chain-8", length=4)
    probabilities = _softmax(task.features @ START)
    total = 0.0
    for choices in itertools.product(range(OPTIONS), repeat=4):
        env = ChainEnv("chain-8", length=4)
        for choice in choices:
            _, reward, *_ = env.step(choice)
        total += reward * np.prod([probabilities[t, c] for t, c in enumerate(choices)])
    assert exact_success(probabilities, task) == pytest.approx(total, abs=1e-12)


def test_the_start_succeeds_on_about_nine_percent() -> None:
    tasks = make_tasks([f"chain-{i}" for i in range(2000)])
    assert exact_success(_softmax(tasks.features @ START), tasks) == pytest.approx(0.0879, abs=0.01)


def test_only_critical_decisions_matter() -> None:
    task = make_task("chain-2")
    for t in range(20):
        env = ChainEnv("chain-2")
        for step, right in enumerate(task.right):
            env.step((right + 1) % OPTIONS if step == t else right)
        assert env.grade() == Reward(0.0 if task.critical[t] else 1.0)


def test_grading_in_mid_episode_is_zero_and_disturbs_nothing() -> None:
    env = ChainEnv("chain-2")
    env.step(1)
    before = env.state_id
    assert env.grade() == Reward(0.0)
    assert env.state_id == before


def test_state_ids_are_the_choices_made() -> None:
    env = ChainEnv("chain-2", length=3)
    ids = set()
    for choices in itertools.product(range(2), repeat=2):
        env.reset()
        for choice in choices:
            env.step(choice)
        ids.add(env.state_id)
    assert len(ids) == 4
    env.reset()
    assert env.state_id == ChainEnv("chain-2", length=3).state_id != ChainEnv("chain-2").state_id


def test_a_snapshot_is_restored_exactly_also_elsewhere() -> None:
    env = ChainEnv("chain-2")
    for choice in (1, 2, 3):
        env.step(choice)
    ref = env.snapshot()
    expected = env.step(0)[0]["features"]
    for other in (env, ChainEnv("chain-2")):
        observation = other.restore(ref)
        assert other.state_id == ref.state_id
        assert (observation["features"] == make_task("chain-2").features[3]).all()
        assert (other.step(0)[0]["features"] == expected).all()


def test_a_reference_of_another_task_is_a_mismatch() -> None:
    env = ChainEnv("chain-2")
    env.step(1)
    with pytest.raises(StateMismatch, match="lead to"):
        ChainEnv("chain-3").restore(env.snapshot())
    with pytest.raises(StateMismatch):
        env.restore(StateRef(env.state_id, {"choices": [2]}))


@pytest.mark.parametrize("action", [-1, OPTIONS, 99])
def test_an_action_that_does_not_exist_is_refused(action: int) -> None:
    with pytest.raises(ValueError, match="expected 0 to 3"):
        ChainEnv().step(action)


def test_stepping_after_the_end_is_refused() -> None:
    env = ChainEnv(length=1)
    env.step(0)
    with pytest.raises(RuntimeError, match="has ended"):
        env.step(0)
