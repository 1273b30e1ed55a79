"""Episodes of shell commands: cached, virtual, replayed, restored, graded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from refork.envs.forkable import Edge, ForkableEnv, InfraFailure, Reward, StateMismatch, StateRef
from refork.envs.swe.env import EXIT_KILLED, SWEEnv, UnicodeText
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.taskset import TaskSet

from tests.envs.swe.doubles import BrokenBackend, MemoryCache
from tests.envs.swe.toy import flaky, toy_tasks

FIX = "sed -i 's/if x > low/if x < low/' calc.py"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskSet:
    return toy_tasks(tmp_path_factory.mktemp("tasks"), "direction")


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache()


@pytest.fixture
def env(tasks: TaskSet, overlay: Backend, cache: MemoryCache) -> Iterator[SWEEnv]:
    made = SWEEnv(tasks, tasks.tasks[0], overlay, cache)
    yield made
    made.close()


def test_a_repair_by_hand(env: SWEEnv) -> None:
    assert isinstance(env, ForkableEnv)
    seen, info = env.reset(seed=0)
    assert seen["output"] == "Some tests fail."
    start = info["workspace_id"]
    seen, reward, terminated, truncated, info = env.step("pwd; ls; grep -n low calc.py | head -2; exit 3")
    assert seen["output"].startswith("/testbed\ncalc.py\ntests\n")
    assert (int(seen["exit_code"]), int(seen["omitted_bytes"])) == (3, 0)
    assert (reward, terminated, truncated, info["spent"].executed) == (0.0, False, False, True)
    assert info["workspace_id"] == start
    assert env.grade() == Reward(0.0)
    *_, info = env.step(FIX)
    assert info["workspace_id"] != start
    seen, *_ = env.step("python -m pytest -q tests 2>&1 | tail -1")
    assert seen["output"].startswith("8 passed")
    _, reward, terminated, truncated, info = env.step("submit\n")
    assert (reward, terminated, truncated, info["outcome"]) == (1.0, True, False, Reward(1.0))
    with pytest.raises(gymnasium.error.ResetNeeded, match="submitted"):
        env.step("ls")


def test_the_grade_leaves_the_state_alone(env: SWEEnv) -> None:
    env.reset(seed=0)
    env.step("echo x > notes")
    before = env.state_id
    env.grade()
    assert env.state_id == before
    seen, *_ = env.step("cat notes; ls")
    assert seen["output"] == "x\ncalc.py\nnotes\ntests\n"


def test_known_commands_run_nowhere(env: SWEEnv, tasks: TaskSet, cache: MemoryCache) -> None:
    env.reset(seed=0)
    first = [env.step(command) for command in ("echo 1 > a", "cat a", FIX, "submit")]
    again = SWEEnv(tasks, tasks.tasks[0], BrokenBackend(), cache)
    again.reset(seed=0)
    second = [again.step(command) for command in ("echo 1 > a", "cat a", FIX, "submit")]
    assert [s[0] for s in second] == [s[0] for s in first]
    assert [s[4]["workspace_id"] for s in second] == [s[4]["workspace_id"] for s in first]
    assert [s[4]["spent"].executed for s in second] == [False] * 4
    assert second[-1][1] == 1.0
    again.reset(seed=0)
    with pytest.raises(InfraFailure, match="no sandbox here"):
        again.step("echo never run")


def test_a_virtual_state_is_made_real_by_its_commands(
    env: SWEEnv, tasks: TaskSet, overlay: Backend, cache: MemoryCache
) -> None:
    env.reset(seed=0)
    env.step("echo 1 > a")
    env.step("echo 2 >> a")
    other = SWEEnv(tasks, tasks.tasks[0], overlay, cache)
    other.reset(seed=0)
    assert [other.step(c)[4]["spent"].executed for c in ("echo 1 > a", "echo 2 >> a")] == [False, False]
    seen, *_, info = other.step("cat a")
    assert (seen["output"], info["spent"].executed) == ("1\n2\n", True)
    other.close()


def test_a_command_that_leads_elsewhere_when_replayed(env: SWEEnv, cache: MemoryCache) -> None:
    env.reset(seed=0)
    env.step("echo 1 > a")
    env.step("echo 2 > b")
    key = next(k for k in cache.edges if "echo 2" in k[2])
    cache.edges[key] = Edge(cache.edges[key].observation, 0.1, "f" * 64)
    env.close()
    env.reset(seed=0)
    env.step("echo 1 > a")
    env.step("echo 2 > b")
    with pytest.raises(StateMismatch, match=r"replayed command 1 \('echo 2 > b'\) led to state .*, expected ffff"):
        env.step("ls")


def test_forks_of_one_state_do_not_meet(env: SWEEnv) -> None:
    env.reset(seed=0)
    env.step("echo base > a")
    ref = env.snapshot()
    sent = StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
    ids = []
    for text in ("left", "right"):
        env.restore(sent)
        assert env.state_id == ref.state_id
        seen, *_ = env.step(f"echo {text} >> a; cat a")
        assert seen["output"] == f"base\n{text}\n"
        ids.append(env.state_id)
    assert ids[0] != ids[1]


def test_a_snapshot_whose_layers_are_gone_comes_back_by_replay(
    tasks: TaskSet, tmp_path: Path, overlay: Backend
) -> None:
    env = SWEEnv(tasks, tasks.tasks[0], overlay)
    env.reset(seed=0)
    env.step("echo base > a")
    ref = env.snapshot()
    assert ref.payload["sandbox"] is not None
    gone = {**ref.payload["sandbox"], "payload": {"layers": ["no-such-layer"]}}
    fresh = SWEEnv(tasks, tasks.tasks[0], overlay)
    fresh.restore(StateRef(ref.state_id, {**ref.payload, "sandbox": gone}))
    seen, *_ = fresh.step("cat a")
    assert seen["output"] == "base\n"
    env.close()
    fresh.close()


def test_a_reference_that_was_changed_is_refused(env: SWEEnv) -> None:
    env.reset(seed=0)
    env.step("echo base > a")
    ref = env.snapshot()
    with pytest.raises(StateMismatch, match="restored"):
        env.restore(StateRef(ref.state_id, {**ref.payload, "steps_left": 1}))


def test_budgets_end_an_episode_and_it_is_graded(tasks: TaskSet, overlay: Backend) -> None:
    env = SWEEnv(tasks, tasks.tasks[0], overlay, max_steps=2)
    env.reset(seed=0)
    assert env.step("true")[2:4] == (False, False)
    _, reward, terminated, truncated, _ = env.step(FIX)
    assert (reward, terminated, truncated) == (1.0, False, True)
    env.close()
    env = SWEEnv(tasks, tasks.tasks[0], overlay, seconds=0.3)
    env.reset(seed=0)
    assert env.step("true")[3] is False
    _, reward, _, truncated, info = env.step("sleep 0.3")
    assert (reward, truncated, info["steps_left"]) == (0.0, True, 48)
    assert env.episode.ended == "out of time"
    env.close()


def test_a_command_that_takes_too_long_is_ended_and_not_remembered(
    tasks: TaskSet, overlay: Backend, cache: MemoryCache
) -> None:
    env = SWEEnv(tasks, tasks.tasks[0], overlay, cache, command_seconds=0.5, output_bytes=1_000)
    env.reset(seed=0)
    seen, *_ = env.step("echo begun; sleep 30")
    assert seen["output"] == "begun\n\n[ended: the wall limit was reached]\n"
    assert int(seen["exit_code"]) == EXIT_KILLED
    assert cache.counts["record"] == 0
    seen, *_ = env.step("head -c 5000 /dev/zero | tr '\\0' x")
    assert int(seen["omitted_bytes"]) == 4_000
    assert env.observation_space.contains(seen)
    env.close()


def test_a_task_that_failed_the_audit_runs_uncached(tasks: TaskSet, overlay: Backend, cache: MemoryCache) -> None:
    env = SWEEnv(tasks, flaky(tasks), overlay, cache)
    env.reset(seed=0)
    env.step("true")
    env.grade()
    assert cache.counts == {}
    env.close()


def test_steps_are_part_of_the_state_and_time_is_not(env: SWEEnv) -> None:
    env.reset(seed=0)
    start = env.state_id
    env.step("true")
    assert env.state_id != start
    env.episode = replace(env.episode, steps_left=env.max_steps)
    assert env.state_id == start


def test_any_text_is_an_observation() -> None:
    space = UnicodeText(10)
    assert space.contains("ü€\x00\ufffd𝄞\n")
    assert not space.contains("x" * 11)
    assert not space.contains(np.str_("x").encode())
    space.seed(0)
    assert space.contains(space.sample())
