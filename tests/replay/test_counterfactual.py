"""A task group: what is forked, what the branches are, and what failures of the machinery become."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refork.envs.chain import OPTIONS, START, ChainEnv
from refork.envs.forkable import InfraError, Reward, Timeout
from refork.replay.counterfactual import (
    ForkConfig,
    GroupRequest,
    collect_group,
    difficulty,
    forked_rollouts,
    lost_group,
)
from refork.replay.seeding import generator, task_seed
from refork.replay.trajectory import TaskExperience, Trajectory

from tests.replay.scripted_env import LENGTH, ScriptedEnv, UniformPolicy

FORK_ALL = ForkConfig(which="all", rule="uniform", forks=2)


def _request(task: str = "t", size: int = 4, **fields: int) -> GroupRequest:
    return GroupRequest(task, fields.get("episode", 0), fields.get("seed", 0), 11, size)


class LinearPolicy:
    def probabilities(self, observation: dict) -> np.ndarray:
        logits = observation["features"] @ START
        exp = np.exp(logits - logits.max())
        return exp / exp.sum()


def _main(value: float | None, steps: int = 1, attempt: int = 0) -> Trajectory:
    played = collect_group(ScriptedEnv(), UniformPolicy(), _request(size=1)).mains[0].decisions[:steps]
    return Trajectory("t", 0, attempt, played, InfraError("x") if value is None else Reward(value))


def _comparable(experience: TaskExperience) -> list:
    return [
        (t.key, t.outcome, t.origin, [(d.state_id, d.action, d.log_prob) for d in t.decisions])
        for t in experience.trajectories
    ] + list(experience.forks)


def test_main_rollouts_are_whole_episodes_with_the_policys_numbers() -> None:
    experience = collect_group(ScriptedEnv(), UniformPolicy(0.25, 0.75), _request())
    assert [t.attempt for t in experience.mains] == [0, 1, 2, 3]
    for main in experience.mains:
        assert main.steps == LENGTH
        assert main.outcome == Reward(float(main.decisions[0].action == 1))
        for t, decision in enumerate(main.decisions):
            assert decision.state_id == "".join(str(d.action) for d in main.decisions[:t])
            assert decision.probability == (0.25, 0.75)[decision.action]
            assert decision.log_prob == pytest.approx(np.log(decision.probability))
            assert decision.entropy == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75))
    assert experience.branches == ()
    assert experience.forks == ()


def test_branches_start_at_the_fork_with_another_action() -> None:
    experience = collect_group(ScriptedEnv(), UniformPolicy(), _request(), FORK_ALL)
    assert len(experience.forks) == 8
    assert len(experience.branches) == 8
    by_key = {t.key: t for t in experience.trajectories}
    assert len(by_key) == 12
    for fork in experience.forks:
        parent, branch = by_key[fork.parent], by_key[fork.alternatives[0]]
        decision = parent.decisions[fork.step]
        assert branch.origin is not None
        assert (branch.origin.parent, branch.origin.step, branch.origin.same_action) == (fork.parent, fork.step, False)
        assert branch.decisions[0].state_id == decision.state_id
        assert branch.decisions[0].action == 1 - decision.action
        assert branch.steps == LENGTH - fork.step
        assert branch.outcome == (Reward(1.0 - parent.value) if fork.step == 0 else parent.outcome)  # type: ignore[operator]
    assert experience.steps == 16 + sum(b.steps for b in experience.branches)


def test_replays_take_the_same_action() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=1, alternatives=3, replays=2)
    experience = collect_group(ScriptedEnv(), UniformPolicy(0.2, 0.5, 0.3), _request(size=2), config)
    by_key = {t.key: t for t in experience.trajectories}
    for fork in experience.forks:
        taken = by_key[fork.parent].decisions[fork.step].action
        assert [by_key[k].decisions[0].action == taken for k in fork.replays] == [True, True]
        assert [by_key[k].decisions[0].action == taken for k in fork.alternatives] == [False] * 3


def test_alternatives_follow_the_policy_without_the_action_taken() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=4, alternatives=50)
    experience = collect_group(ScriptedEnv(), UniformPolicy(0.5, 0.2, 0.3), _request(size=30), config)
    by_key = {t.key: t for t in experience.trajectories}
    taken_0 = [f for f in experience.forks if by_key[f.parent].decisions[f.step].action == 0]
    drawn = [by_key[k].decisions[0].action for f in taken_0 for k in f.alternatives]
    assert len(drawn) > 2000
    assert np.mean(np.array(drawn) == 1) == pytest.approx(0.4, abs=4 * (0.24 / len(drawn)) ** 0.5)


def test_a_fraction_of_a_fork_is_a_chance_of_one() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=1.25)
    experience = collect_group(ScriptedEnv(), UniformPolicy(), _request(size=400), config)
    assert 400 + 65 <= len(experience.forks) <= 400 + 135


def test_results_do_not_depend_on_what_was_played_before() -> None:
    config = ForkConfig(which="mixed", rule="entropy", forks=3)
    env = ChainEnv("chain-5")
    first = collect_group(env, LinearPolicy(), _request("chain-5", size=6), config)
    collect_group(env, LinearPolicy(), _request("chain-5", episode=1), config)
    again = collect_group(env, LinearPolicy(), _request("chain-5", size=6), config)
    elsewhere = collect_group(ChainEnv("chain-5"), LinearPolicy(), _request("chain-5", size=6), config)
    assert _comparable(first) == _comparable(again) == _comparable(elsewhere)


@pytest.mark.parametrize("other", [{"episode": 1}, {"seed": 1}])
def test_another_episode_or_seed_is_another_draw(other: dict[str, int]) -> None:
    one = collect_group(ChainEnv(), LinearPolicy(), _request("chain-0"))
    assert _comparable(one) != _comparable(collect_group(ChainEnv(), LinearPolicy(), _request("chain-0", **other)))


def test_streams_differ_by_purpose_and_number() -> None:
    draws = {generator(*key).random() for key in [(0, "a", 0), (0, "a", 1), (0, "b", 0), (1, "a", 0), (0, "a", 0, 0)]}
    assert len(draws) == 5
    assert task_seed(3, "t") == task_seed(3, "t") != task_seed(3, "u")


def test_greedy_takes_the_most_probable_action() -> None:
    request = GroupRequest("t", 0, 0, 11, 2, greedy=True)
    for main in collect_group(ScriptedEnv(), UniformPolicy(0.4, 0.6), request).mains:
        assert [d.action for d in main.decisions] == [1] * LENGTH


@pytest.mark.parametrize(
    ("values", "which", "expected"),
    [
        ((1.0, 0.0, 1.0), "mixed_successes", [0, 2]),
        ((1.0, 0.0, 1.0), "mixed", [0, 1, 2]),
        ((1.0, None, 1.0), "mixed_successes", []),
        ((1.0, None, 0.0), "mixed", [0, 2]),
        ((0.0, 0.0, 0.0), "mixed", []),
        ((0.0, 0.0, None), "all", [0, 1]),
        ((None, None, None), "all", []),
        ((0.2, 0.5, 0.9), "mixed_successes", [2]),
    ],
)
def test_which_rollouts_are_forked(values: tuple, which: str, expected: list[int]) -> None:
    mains = [_main(value, attempt=i) for i, value in enumerate(values)]
    assert [m.attempt for m in forked_rollouts(mains, which)] == expected  # type: ignore[arg-type]


def test_a_point_without_another_likely_action_is_skipped_and_counted() -> None:
    config = replace(FORK_ALL, floor=1e-3)
    experience = collect_group(ScriptedEnv(), UniformPolicy(0.9995, 0.0005), _request(), config)
    assert (experience.skipped, experience.branches, experience.forks) == (8, (), ())
    experience = collect_group(ScriptedEnv(), UniformPolicy(1.0, 0.0), _request(), ForkConfig(which="all", floor=0.0))
    assert experience.branches == ()


@pytest.mark.parametrize(("place", "decisions"), [("step", 2), ("grade", LENGTH)])
def test_a_failure_in_mid_episode_is_an_outcome_and_the_group_goes_on(place: str, decisions: int) -> None:
    env = ScriptedEnv({place: 2 if place == "step" else 0})
    experience = collect_group(env, UniformPolicy(), _request(size=3))
    assert experience.mains[0].outcome == InfraError(f"{place} broke")
    assert experience.mains[0].steps == decisions
    assert [type(m.outcome) for m in experience.mains[1:]] == [Reward, Reward]
    assert experience.unjudged == 1


def test_a_task_that_cannot_be_reset_is_tried_once() -> None:
    env = ScriptedEnv({"reset": 0}, always=True)
    experience = collect_group(env, UniformPolicy(), _request(size=3), FORK_ALL)
    assert [m.outcome for m in experience.mains] == [InfraError("reset broke")] * 3
    assert [m.key for m in experience.mains] == ["t/0/0", "t/0/1", "t/0/2"]
    assert env.calls == {"reset": 1}


def test_a_branch_that_cannot_be_restored_is_an_infra_outcome() -> None:
    experience = collect_group(ScriptedEnv({"restore": 0}), UniformPolicy(), _request(), FORK_ALL)
    assert experience.branches[0].outcome == InfraError("restore broke")
    assert experience.branches[0].decisions == ()
    assert len(experience.branches) == 8
    assert experience.unjudged == 1


def test_a_state_that_is_not_the_one_recorded_is_named_and_marked() -> None:
    experience = collect_group(ScriptedEnv({"mismatch": 0}), UniformPolicy(), _request(), FORK_ALL)
    assert {b.outcome for b in experience.branches} == {InfraError("state mismatch: a.py differs")}
    assert all(b.info == {"state_mismatch": True} for b in experience.branches)


def test_a_timeout_stays_a_timeout() -> None:
    env = ScriptedEnv()
    env.timeout = True
    experience = collect_group(env, UniformPolicy(), _request())
    assert {m.outcome for m in experience.mains} == {Timeout("grading")}
    assert experience.unjudged == 4


def test_steps_answered_by_the_cache_are_not_counted_as_executed() -> None:
    env = ScriptedEnv()
    experience = collect_group(env, UniformPolicy(), _request(size=10), FORK_ALL)
    assert experience.steps_executed == len(env.cached)
    assert experience.steps > experience.steps_executed


def test_a_lost_group_has_the_keys_it_would_have_had() -> None:
    lost = lost_group(_request(size=2), "actor died: memory")
    assert [(m.key, m.outcome) for m in lost.mains] == [(f"t/0/{i}", InfraError("actor died: memory")) for i in (0, 1)]


def test_the_chain_is_forked_exactly() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=5)
    experience = collect_group(ChainEnv("chain-3"), LinearPolicy(), _request("chain-3"), config)
    by_key = {t.key: t for t in experience.trajectories}
    env = ChainEnv("chain-3")
    for branch in experience.branches:
        assert branch.origin is not None
        prefix = [d.action for d in by_key[branch.origin.parent].decisions[: branch.origin.step]]
        env.reset()
        for action in prefix + [d.action for d in branch.decisions]:
            assert 0 <= action < OPTIONS
            env.step(action)
        assert env.grade() == branch.outcome


def test_results_do_not_depend_on_the_hash_seed_or_the_process() -> None:
    code = (
        "import tests.replay.test_counterfactual as t;"
        "chain = t.ChainEnv('chain-5'), t.LinearPolicy(), t._request('chain-5'), t.FORK_ALL;"
        "print(t._comparable(t.collect_group(*chain)))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {
        str(_comparable(collect_group(ChainEnv("chain-5"), LinearPolicy(), _request("chain-5"), FORK_ALL))) + "\n"
    }


def test_continuations_are_drawn_from_the_policy_as_it_is() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=4, alternatives=50, actions="policy")
    experience = collect_group(ScriptedEnv(), UniformPolicy(0.5, 0.2, 0.3), _request(size=20), config)
    by_key = {t.key: t for t in experience.trajectories}
    drawn = [b.decisions[0].action for b in experience.branches]
    assert len(drawn) == 20 * 4 * 50
    for action, probability in enumerate((0.5, 0.2, 0.3)):
        error = (probability * (1 - probability) / len(drawn)) ** 0.5
        assert np.mean(np.array(drawn) == action) == pytest.approx(probability, abs=4 * error)
    for fork in experience.forks:
        taken = by_key[fork.parent].decisions[fork.step].action
        assert {by_key[k].decisions[0].action for k in fork.replays} == {taken}
        assert taken not in {by_key[k].decisions[0].action for k in fork.alternatives}


def test_a_state_without_another_action_still_has_continuations() -> None:
    config = ForkConfig(which="all", every=2, actions="policy")
    experience = collect_group(ScriptedEnv(), UniformPolicy(1.0, 0.0), _request(), config)
    assert (len(experience.branches), experience.skipped) == (8, 0)
    assert collect_group(ScriptedEnv(), UniformPolicy(1.0, 0.0), _request(), replace(config, floor=0.1)).skipped == 8


def test_every_kth_decision_is_forked_without_a_draw() -> None:
    experience = collect_group(ScriptedEnv(), UniformPolicy(), _request(), ForkConfig(which="all", every=3))
    assert [(f.step, f.selection) for f in experience.forks] == [(0, 1.0), (3, 1.0)] * 4


def test_harder_tasks_are_forked_more_often() -> None:
    config = ForkConfig(which="all", rule="uniform", forks=4, by_difficulty=True)
    solved = collect_group(ScriptedEnv(), UniformPolicy(0.0, 1.0), _request(), replace(config, actions="policy"))
    failed = collect_group(ScriptedEnv(), UniformPolicy(1.0, 0.0), _request(), replace(config, actions="policy"))
    assert (len(solved.forks), len(failed.forks)) == (0, 16)
    assert difficulty([_main(0.25), _main(None), _main(0.75)]) == 0.5
    assert difficulty([_main(None)]) == difficulty([_main(-1.0)]) == 1.0
