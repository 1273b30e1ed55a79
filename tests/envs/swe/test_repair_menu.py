"""Episodes on the repair menu of a toy package: what is offered, learned, remembered, rewarded, restored."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from refork.envs.forkable import (
    ForkableEnv,
    InfraError,
    InfraFailure,
    Outcome,
    Reward,
    StateMismatch,
    StateRef,
    Timeout,
)
from refork.envs.swe.baselines import OchiaiGreedy, Uniform
from refork.envs.swe.features import COLUMN
from refork.envs.swe.repair_menu import RepairMenuEnv
from refork.envs.swe.sandbox.base import Backend, Sandbox
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

from tests.envs.swe.doubles import BrokenBackend, MemoryCache
from tests.envs.swe.toy import CLEAN, flaky, toy_tasks

LOW = "calc.py:8 [direction] - if x > low:  + if x < low:"
SUM = "calc.py:18 [arithmetic] - total = total - value  + total = total + value"
WRONG = "calc.py:16 [off_by_one] - total = 0  + total = 1"
NEVER_RUN = "calc.py:19 [arithmetic] - return total / len(values)  + return total * len(values)"


@pytest.fixture(scope="module")
def cache() -> MemoryCache:
    return MemoryCache()


@pytest.fixture(scope="module")
def two_bugs(tmp_path_factory: pytest.TempPathFactory, overlay: Backend, cache: MemoryCache) -> Iterator[RepairMenuEnv]:
    tasks = toy_tasks(tmp_path_factory.mktemp("two"), "direction", "arithmetic")
    env = RepairMenuEnv(tasks, tasks.tasks[0], overlay, cache)
    yield env
    env.close()


def do(env: RepairMenuEnv, *actions: str) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
    """Take actions named by a menu text, or undo, run, neighbourhood, submit."""
    result: Any = None
    for action in actions:
        named = {"undo": env.undo, "run": env.run_failing, "neighbourhood": env.run_neighbours, "submit": env.submit}
        result = env.step(named[action] if action in named else env.menu().texts.index(action))
    return result


def column(observation: dict[str, np.ndarray], name: str) -> np.ndarray:
    return observation["features"][:, COLUMN[name]]


def test_the_menu_begins_with_the_most_suspicious_lines(two_bugs: RepairMenuEnv) -> None:
    observation, info = two_bugs.reset(seed=0)
    assert isinstance(two_bugs, ForkableEnv)
    assert info["menu"][:4] == (
        "calc.py:8 [comparison] - if x > low:  + if x >= low:",
        LOW,
        "calc.py:8 [negation] - if x > low:  + if not x > low:",
        "calc.py:9 [negation] - return low  + return not low",
    )
    assert {LOW, SUM, WRONG} <= set(info["menu"])
    assert info["problem_statement"] == "Some tests fail."
    assert len(two_bugs.failing) == 6
    count = len(info["menu"])
    assert observation["mask"].tolist() == [True] * count + [False] * (60 - count) + [False, False, False, True]
    assert two_bugs.describe(0) == info["menu"][0]
    assert [two_bugs.describe(60 + i) for i in range(4)] == ["undo", "run", "neighbourhood", "submit"]
    assert two_bugs.describe(59) == "(no candidate)"


def test_two_right_edits_in_order_are_worth_one(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    observation, reward, *_ = do(two_bugs, LOW, "run")
    assert reward == 0.0
    assert column(observation, "improved").tolist() == [1.0] * 64
    assert column(observation, "failing_left")[0] == pytest.approx(2 / 6)
    assert column(observation, "error_Assertion")[0] == 1.0
    observation, reward, *_ = do(two_bugs, SUM, "run", "neighbourhood")
    assert column(observation, "clean")[0] == 1.0
    assert column(observation, "neighbours_known")[0] == 1.0
    assert column(observation, "neighbours_broken")[0] == 0.0
    _, reward, terminated, truncated, info = do(two_bugs, "submit")
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["outcome"] == Reward(1.0)
    assert info["steps_left"] == 10
    assert two_bugs.workspace.modules["calc.py"].text == CLEAN
    with pytest.raises(gymnasium.error.ResetNeeded, match="submitted"):
        two_bugs.step(0)


def test_half_a_repair_is_worth_nothing(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    _, reward, terminated, _, info = do(two_bugs, LOW, "submit")
    assert (reward, terminated, info["outcome"]) == (0.0, True, Reward(0.0))


def test_a_trial_is_remembered_after_undo(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    wrong, right = (two_bugs.menu().texts.index(text) for text in (WRONG, LOW))
    observation, *_ = do(two_bugs, WRONG, "run")
    assert column(observation, "not_improved")[0] == 1.0
    assert not observation["mask"][two_bugs.run_failing]
    observation, *_ = do(two_bugs, "undo", LOW, "run", "undo")
    assert [column(observation, "tried")[i] for i in (wrong, right)] == [1.0, 1.0]
    assert column(observation, "tried").sum() == 2
    assert column(observation, "gain")[right] == pytest.approx(4 / 6)
    assert column(observation, "no_gain")[[wrong, right]].tolist() == [1.0, 0.0]
    assert column(observation, "edits")[0] == 0.0
    observation, *_ = do(two_bugs, LOW)  # its result is known: the menu is that of the repaired place at once
    assert column(observation, "unrun")[0] == 0.0
    assert WRONG in two_bugs.menu().texts
    wrong = two_bugs.menu().texts.index(WRONG)
    assert column(observation, "tried")[wrong] == 0.0
    assert column(observation, "tried_before")[wrong] == 1.0


def test_edits_not_yet_run_keep_the_menu_and_bar_what_they_touch(two_bugs: RepairMenuEnv) -> None:
    observation, info = two_bugs.reset(seed=0)
    menu = info["menu"]
    observation, *_, info = do(two_bugs, LOW)
    assert info["menu"] == menu
    barred = {text for text, ok in zip(menu, observation["mask"], strict=False) if not ok}
    assert barred == {text for text in menu if text.startswith("calc.py:8 ") and "not x" not in text}
    do(two_bugs, SUM)
    assert two_bugs.workspace.modules["calc.py"].text == CLEAN
    assert column(two_bugs.observe(), "pending")[0] == pytest.approx(2 / 3)


def test_ways_that_know_the_same_meet_in_one_state(two_bugs: RepairMenuEnv) -> None:
    ids = []
    for first, second in ((LOW, WRONG), (WRONG, LOW)):
        two_bugs.reset(seed=0)
        do(two_bugs, first, "run", "undo", second, "run", "undo")
        ids.append(two_bugs.state_id)
    assert ids[0] == ids[1]
    two_bugs.reset(seed=0)
    assert two_bugs.state_id != ids[0]
    start = two_bugs.workspace.id
    do(two_bugs, LOW, "undo")
    assert two_bugs.workspace.id == start


def test_what_is_learnt_later_of_a_state_below_moves_no_edit(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    do(two_bugs, LOW, NEVER_RUN, "run")
    shown = two_bugs.menu().texts
    below = two_bugs.bench.workspaces.at(two_bugs.state.stack[:1]).id
    known = two_bugs.state.known[two_bugs.workspace.id].failing
    two_bugs.state = two_bugs.state.learned(below, failing=known)  # as after taking NEVER_RUN back by another edit
    assert two_bugs.menu().texts == shown
    do(two_bugs, SUM)
    assert [applied.base for applied in two_bugs.state.stack] == [0, 0, 2]


def test_the_workspace_id_is_the_sandbox_s(two_bugs: RepairMenuEnv, overlay: Backend) -> None:
    two_bugs.reset(seed=0)
    with overlay.open(two_bugs.bench.spec) as sandbox:
        assert sandbox.state_id == two_bugs.workspace.id
        do(two_bugs, LOW, SUM)
        sandbox.put(two_bugs.workspace.files)
        assert sandbox.state_id == two_bugs.workspace.id
        do(two_bugs, "undo", "undo")
        sandbox.put({"/testbed/calc.py": two_bugs.workspace.modules["calc.py"].text.encode()})
        assert sandbox.state_id == two_bugs.workspace.id


def test_a_masked_action_only_costs_a_step(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    before = two_bugs.workspace.id
    _, reward, terminated, truncated, info = do(two_bugs, "undo")
    assert (reward, terminated, truncated, info["invalid"]) == (0.0, False, False, True)
    assert (two_bugs.workspace.id, info["steps_left"]) == (before, 15)


def test_the_last_step_is_graded_too(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    do(two_bugs, LOW, SUM)
    two_bugs.state = replace(two_bugs.state, steps_left=1)
    observation, reward, terminated, truncated, info = do(two_bugs, "run")
    assert (reward, terminated, truncated, info["outcome"]) == (1.0, False, True, Reward(1.0))
    assert observation["mask"].sum() == 1


def test_snapshots_are_small_fast_and_come_back_exactly(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    do(two_bugs, LOW, "run", WRONG, "run", "undo")
    ref = two_bugs.snapshot()
    sent = StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
    seen = two_bugs.observe()
    do(two_bugs, SUM, "submit")
    restored = two_bugs.restore(sent)
    assert two_bugs.state_id == ref.state_id
    assert all(np.array_equal(restored[key], seen[key]) for key in seen)
    _, reward, *_ = do(two_bugs, SUM, "submit")
    assert reward == 1.0
    seconds = []
    for _ in range(200):
        begun = time.perf_counter()
        two_bugs.restore(sent)
        two_bugs.snapshot()
        seconds.append(time.perf_counter() - begun)
    assert statistics.median(seconds) < 0.002


def test_a_reference_that_was_changed_is_refused(two_bugs: RepairMenuEnv) -> None:
    two_bugs.reset(seed=0)
    do(two_bugs, LOW)
    ref = two_bugs.snapshot()
    with pytest.raises(StateMismatch, match=r"expected state .*, restored "):
        two_bugs.restore(StateRef(ref.state_id, {**ref.payload, "steps_left": 3}))
    assert two_bugs.state_id == ref.state_id


def test_what_is_in_the_cache_needs_no_sandbox(two_bugs: RepairMenuEnv, cache: MemoryCache, tmp_path: Path) -> None:
    two_bugs.reset(seed=0)
    do(two_bugs, LOW, "run", SUM, "run", "submit")
    tasks = toy_tasks(tmp_path, "direction", "arithmetic")
    env = RepairMenuEnv(tasks, tasks.tasks[0], BrokenBackend(), cache)
    _, info = env.reset(seed=0)
    assert not info["spent"].executed
    assert info["spent"].seconds > 0
    _, reward, *_, info = do(env, LOW, "run", SUM, "run", "submit")
    assert (reward, info["spent"].executed) == (1.0, False)
    env.reset(seed=0)
    with pytest.raises(InfraFailure, match="no sandbox here"):
        do(env, NEVER_RUN, "run")


def test_a_task_that_failed_the_audit_runs_uncached(tmp_path: Path, cache: MemoryCache) -> None:
    tasks = toy_tasks(tmp_path, "direction", "arithmetic")
    env = RepairMenuEnv(tasks, flaky(tasks), BrokenBackend(), cache)
    with pytest.raises(InfraFailure, match="no sandbox here"):
        env.reset(seed=0)


@pytest.mark.parametrize("deterministic", [True, False])
def test_what_is_known_to_fail_is_not_graded(two_bugs: RepairMenuEnv, tmp_path: Path, deterministic: bool) -> None:
    tasks = toy_tasks(tmp_path, "direction", "arithmetic")
    task = tasks.tasks[0] if deterministic else flaky(tasks)
    graded: list[str] = []

    def grader(sandbox: Sandbox, task: SWETask, tasks: TaskSet) -> Outcome:
        graded.append(sandbox.state_id)
        return Reward(0.5)

    with closing(RepairMenuEnv(tasks, task, two_bugs.bench.backend, grader=grader)) as env:
        rewards, known = [], 0.0 if deterministic else 0.5
        for actions in ([], [WRONG, "run"], [WRONG], [LOW, "run", SUM], [LOW, "run", SUM, "run"]):
            env.reset(seed=0)
            rewards.append(do(env, *actions, "submit")[1])
        assert rewards == [known, known, 0.5, 0.5, 0.5]
        assert len(graded) == (2 if deterministic else 3)


def test_failures_of_grading_are_no_rewards(two_bugs: RepairMenuEnv, tmp_path: Path, cache: MemoryCache) -> None:
    two_bugs.reset(seed=0)
    tasks = toy_tasks(tmp_path, "direction", "arithmetic")
    outcomes = iter([InfraError("disk full"), Timeout("grading"), Reward(1.0)])
    private = MemoryCache(edges={k: v for k, v in cache.edges.items() if k[2].startswith("probe")})
    env = RepairMenuEnv(
        tasks, tasks.tasks[0], two_bugs.bench.backend, private, grader=lambda sandbox, task, tasks: next(outcomes)
    )
    env.reset(seed=0)
    with pytest.raises(InfraFailure, match="disk full"):
        do(env, LOW, "submit")
    env.reset(seed=0)
    *_, info = do(env, LOW, "submit")
    assert info["outcome"] == Timeout("grading")
    env.reset(seed=0)
    assert do(env, LOW, "submit")[1] == 1.0
    assert [key[2] for key in private.edges if key[2].startswith("grade")] == ["grade:1"]
    env.close()


def test_a_task_without_a_failing_test_has_no_menu(tmp_path: Path, overlay: Backend) -> None:
    tasks = toy_tasks(tmp_path, "direction")
    (tasks.base(tasks.tasks[0]) / "calc.py").write_text(CLEAN)
    base_id = digest_tree(tasks.base(tasks.tasks[0]))
    env = RepairMenuEnv(tasks, replace(tasks.tasks[0], base_id=base_id), overlay)
    with pytest.raises(InfraFailure, match="toy-direction: no test of its workspace fails"):
        env.reset(seed=0)
    env.close()


def test_sizes_are_checked(tmp_path: Path) -> None:
    tasks = toy_tasks(tmp_path, "direction")
    with pytest.raises(ValueError, match="size and max_steps must be at least 1, not 0 and 16"):
        RepairMenuEnv(tasks, tasks.tasks[0], BrokenBackend(), size=0)


def test_ochiai_greedy_tries_undoes_and_submits(two_bugs: RepairMenuEnv) -> None:
    observation, _ = two_bugs.reset(seed=0)
    policy, names, reward, ended = OchiaiGreedy(), list[str](), 0.0, False
    while not ended:
        action = int(policy.probabilities(observation).argmax())
        names.append(two_bugs.describe(action) if action >= 60 else "edit")
        observation, reward, terminated, truncated, _ = two_bugs.step(action)
        ended = terminated or truncated
    trial = ["edit", "run", "undo"]
    assert names == [*trial, "edit", "run", *trial, "edit", "run", "submit"]
    assert reward == 1.0


def test_uniform_spreads_over_what_may_be_done(two_bugs: RepairMenuEnv) -> None:
    observation, _ = two_bugs.reset(seed=0)
    probabilities = Uniform().probabilities(observation)
    assert probabilities.sum() == pytest.approx(1.0)
    assert set(np.flatnonzero(probabilities)) == set(np.flatnonzero(observation["mask"]))


def test_the_solution_is_out_of_reach(tmp_path: Path, overlay: Backend) -> None:
    """Neither this side nor the sandbox opens or holds it."""
    tasks = toy_tasks(tmp_path, "direction")
    (tmp_path / "solutions.jsonl").write_text('{"secret": "if x < low"}')
    opened: list[str] = []
    watching = True
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if watching and event == "open" else None)
    env = RepairMenuEnv(tasks, tasks.tasks[0], overlay)
    env.reset(seed=0)
    do(env, LOW, "run", "submit")
    watching = False
    assert opened
    assert not [path for path in opened if "solutions" in path]
    with overlay.open(env.bench.spec) as sandbox:
        assert sandbox.run(["sh", "-c", "find / -name 'solutions*' 2>/dev/null"]).output == ""
        assert sandbox.run(["sh", "-c", "grep -rls secret /testbed /tmp 2>/dev/null"]).output == ""
    env.close()


SCRIPT = """
import hashlib, json, sys
from pathlib import Path
from refork.envs.swe.repair_menu import RepairMenuEnv
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.taskset import TaskSet
tasks = TaskSet.open(Path(sys.argv[1]))
backend = OverlayBackend(Path(sys.argv[2]))
env = RepairMenuEnv(tasks, tasks.tasks[0], backend)
rows = []
observation, info = env.reset(seed=3)
for action in (2, env.run_failing, env.undo, 5, env.run_failing, 3, env.run_failing, env.run_neighbours):
    rows.append([env.state_id, env.workspace.id, info["menu"], hashlib.sha256(observation["features"]).hexdigest()])
    observation, _, _, _, info = env.step(action)
print(hashlib.sha256(json.dumps(rows).encode()).hexdigest())
env.close()
backend.close()
"""


def test_the_same_in_another_process_with_another_hash_seed(tmp_path: Path) -> None:
    tasks = toy_tasks(tmp_path / "set", "direction", "arithmetic")
    found = []
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SCRIPT, str(tasks.folder), str(tmp_path / f"layers{seed}")]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout)
    assert found[0] == found[1]
    assert len(found[0].strip()) == hashlib.sha256().digest_size * 2
