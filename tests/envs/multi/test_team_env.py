"""The PettingZoo environments of teams: the two checkers, agreement with the simulators, and going back."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test
from pettingzoo.test.seed_test import parallel_seed_test
from refork.envs.forkable import BadInput, ForkableEnv, Reward, StateMismatch, StateRef
from refork.envs.multi.line_env import EqualLineEnv
from refork.envs.multi.particles_env import ParticlesEnv
from refork.envs.multi.team_env import TeamEnv
from refork.envs.registry import PARALLEL, make_env

TASKS = {
    "line-n2": EqualLineEnv,
    "line-n5": EqualLineEnv,
    "spread-n3": ParticlesEnv,
    "spread-n2-continuous": ParticlesEnv,
}
each_task = pytest.mark.parametrize("task", TASKS)


def moves(env: TeamEnv, rng: np.random.Generator) -> dict[str, Any]:
    def one(agent: str) -> Any:
        space = env.action_space(agent)
        return int(rng.integers(space.n)) if hasattr(space, "n") else rng.uniform(-1, 1, 2).astype(np.float32)

    return {agent: one(agent) for agent in env.agents}


def played(env: TeamEnv, steps: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Observations after that many random steps from a reset."""
    rng = np.random.default_rng(seed)
    seen, _ = env.reset(seed=seed)
    for _ in range(steps):
        seen = env.step(moves(env, rng))[0]
    return seen


def rest(env: TeamEnv, seed: int = 7) -> list[tuple[Any, ...]]:
    rng, found = np.random.default_rng(seed), []
    while env.agents:
        seen, rewards, *_ = env.step(moves(env, rng))
        found.append((rewards, {agent: own.tolist() for agent, own in seen.items()}))
    return found


@each_task
def test_the_checkers_of_pettingzoo_find_nothing(task: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(TASKS[task](task), num_cycles=120)
        parallel_seed_test(lambda: TASKS[task](task))


@each_task
def test_all_are_cut_in_the_last_step_and_observations_lie_in_their_spaces(task: str) -> None:
    env = TASKS[task](task)
    seen, infos = env.reset(seed=3)
    horizon, total = env.spec.horizon, 0.0
    assert env.grade() == Reward(0.0)
    rng = np.random.default_rng(3)
    for t in range(horizon):
        assert all(env.observation_space(agent).contains(own) for agent, own in seen.items())
        seen, rewards, terminated, truncated, infos = env.step(moves(env, rng))
        assert terminated == dict.fromkeys(env.possible_agents, False)
        assert truncated == dict.fromkeys(env.possible_agents, t == horizon - 1)
        assert infos[env.possible_agents[0]]["team_reward"] == pytest.approx(np.mean(list(rewards.values())))
        total += infos[env.possible_agents[0]]["team_reward"]
        before = env.state_id
        assert env.grade() == Reward(pytest.approx(total))
        assert env.state_id == before
    assert env.agents == []
    with pytest.raises(RuntimeError, match="has ended"):
        env.step({})


@each_task
def test_it_can_go_back_also_elsewhere_and_by_json(task: str) -> None:
    env = TASKS[task](task)
    assert isinstance(env, ForkableEnv)
    before = played(env, 8)
    ref = env.snapshot()
    ref = StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
    grade, after = env.grade(), rest(env)
    for noise in ("same", "fresh"):
        for other in (env, TASKS[task](task)):
            seen = other.restore(ref, noise=noise)
            assert other.state_id == ref.state_id
            assert other.grade() == grade
            assert all((seen[agent] == own).all() for agent, own in before.items())
            assert rest(other) == after


@each_task
def test_the_end_is_restored_as_an_end(task: str) -> None:
    env = TASKS[task](task)
    played(env, env.spec.horizon)
    ref, grade = env.snapshot(), env.grade()
    env.reset()
    env.restore(ref)
    assert env.agents == []
    assert env.grade() == grade
    env.reset(seed=1)
    assert env.agents == env.possible_agents


@each_task
def test_state_ids_are_those_of_what_happened(task: str) -> None:
    env = TASKS[task](task)
    env.reset(seed=2)
    start = env.snapshot()
    ids = {start.state_id}
    for seed in (5, 6):
        env.restore(start)
        env.step(moves(env, np.random.default_rng(seed)))
        ids.add(env.state_id)
    assert len(ids) == 3
    env.restore(start)
    env.step(moves(env, np.random.default_rng(5)))
    assert env.state_id in ids


def _moved(payload: dict[str, Any]) -> None:
    payload["arrays"]["positions"][0][0] += 0.01


def _richer(payload: dict[str, Any]) -> None:
    payload["earned"] += 1.0


def _later(payload: dict[str, Any]) -> None:
    payload["t"] += 1


@each_task
@pytest.mark.parametrize("change", [_moved, _richer, _later])
def test_a_state_that_is_not_its_id_is_a_mismatch_and_leaves_the_environment_alone(
    task: str, change: Callable[[dict[str, Any]], None]
) -> None:
    env = TASKS[task](task)
    played(env, 4)
    payload = json.loads(json.dumps(env.snapshot().payload))
    change(payload)
    wrong = StateRef(env.state_id, payload)
    played(env, 2, seed=1)
    before = env.state_id
    with pytest.raises(StateMismatch, match=r"step \d restored is"):
        env.restore(wrong)
    assert env.state_id == before
    assert len(rest(env)) == env.spec.horizon - 2


def test_a_reference_of_another_task_is_named() -> None:
    with pytest.raises(StateMismatch, match="of the task line-n2, here it is line-n3"):
        EqualLineEnv("line-n3").restore(EqualLineEnv("line-n2").snapshot())


@pytest.mark.parametrize("given", [{"agent_0": 3}, {"agent_0": 11, "agent_1": 0}, {"agent_0": -1, "agent_1": 0}])
def test_missing_and_illegal_moves_are_refused(given: dict[str, int]) -> None:
    env = EqualLineEnv("line-n2")
    before = env.state_id
    with pytest.raises(ValueError, match=r"step 0: move of agent_[01] is"):
        env.step(given)
    assert env.state_id == before


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        ("refork/EqualLine-v0", {"task": "line-n1"}, "n=1 of refork/EqualLine-v0"),
        ("refork/EqualLine-v0", {"task": "spread-n3"}, "task 'spread-n3': expected line-nNUMBER, e.g. line-n3"),
        ("refork/Particles-v0", {"task": 3}, "expected spread-nNUMBER or spread-nNUMBER-continuous"),
        ("refork/Particles-v0", {"task": "spread-n3", "colour": 1}, "options of refork/Particles-v0"),
    ],
)
def test_wrong_options_are_named(env_id: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_env(env_id, **options)


def test_they_are_made_by_the_registry() -> None:
    assert type(make_env("refork/EqualLine-v0", task="line-n4")) is EqualLineEnv
    assert type(make_env("refork/Particles-v0", task="spread-n2")) is ParticlesEnv
    assert {"refork/EqualLine-v0", "refork/Particles-v0"} < set(PARALLEL)
