"""Judges a workspace: 1 iff the task's tests pass in a throw-away fork that holds the task's own test files.

What an agent may do to its workspace beyond repairing it counts for nothing: changes to tests, files that steer pytest
or the interpreter, modules that hide others, and everything in /tmp are undone first (`clean_up.py`). The results do
not come from what the code under test prints (`testrun.py`), and canaries run along whose outcome is known here only.

What cannot be seen: code under test that recognises which test is calling and answers for that one, and objects that
lie when compared. Both are answers of the package itself.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from refork.envs.forkable import InfraError, InfraFailure, Outcome, Reward, Timeout
from refork.envs.swe.clean_up import Undone, clean_up
from refork.envs.swe.sandbox.base import WORKSPACE, Limits, Sandbox
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet
from refork.envs.swe.testrun import TestCommand, TestOutcome, TestRun, run_tests, test_files

LIMITS = Limits(wall_s=180.0, cpu_s=60, output_bytes=8 << 20)
"""Of a judgement; its deadline is its own and has nothing to do with the rollout's."""


@dataclass(frozen=True)
class Verdict:
    """A judgement in full. `cheat` says what gave a cheat away, and is empty when nothing did."""

    outcome: Outcome
    not_passed: tuple[str, ...] = ()
    """Tests of the task that kept the reward at 0."""
    cheat: str = ""
    undone: tuple[str, ...] = ()
    """Workspace-relative paths whose change was undone, though an agent may have had no bad intent."""
    run: TestRun | None = None


def grade(sandbox: Sandbox, task: SWETask, tasks: TaskSet) -> Outcome:
    """The outcome of `sandbox`'s state, which is not disturbed; see `judge`."""
    return judge(sandbox, task, tasks).outcome


def judge(sandbox: Sandbox, task: SWETask, tasks: TaskSet, limits: Limits = LIMITS) -> Verdict:
    """Judge a fork of `sandbox`. A broken sandbox is an InfraError, a passed deadline Timeout('grading').

    A limit on CPU time or memory that the code under test runs into is a failure of that code: Reward(0).
    """
    try:
        with sandbox.fork() as fork:
            return _judge(fork, task, tasks, limits)
    except InfraFailure as error:
        return Verdict(InfraError(f"grading {task.instance_id}: {error}"))


def _judge(fork: Sandbox, task: SWETask, tasks: TaskSet, limits: Limits) -> Verdict:
    undone = clean_up(fork, task, tasks)
    path, text, expected = canaries(task.test_files)
    fork.put({f"{WORKSPACE}/{path}": text})
    paths = list(test_files(task.tests_run))
    paths.insert(secrets.randbelow(len(paths) + 1), path)
    command = TestCommand(
        tests=(*task.tests_run, *expected),
        paths=tuple(paths),
        python_path=task.python_path,
        frozen=(*task.test_roots, path),
        stop=True,
        limits=limits,
    )
    return decide(run_tests(fork, command), task, expected, undone)


def decide(run: TestRun, task: SWETask, expected: Mapping[str, TestOutcome], undone: Undone) -> Verdict:
    """What a run says. `expected` are the canaries' outcomes."""
    paths = undone.paths
    if run.command.killed_by == "wall":
        return Verdict(Timeout("grading"), undone=paths, run=run)
    not_passed = tuple(
        test
        for tests, enough in ((task.fail_to_pass, ("passed",)), (task.pass_to_pass, ("passed", "skipped")))
        for test in tests
        if run.outcomes.get(test) not in enough
    )
    cheat = _cheat(run, expected)
    solved = run.report == "whole" and not not_passed and not cheat
    return Verdict(Reward(float(solved)), not_passed, cheat, paths, run)


def _cheat(run: TestRun, expected: Mapping[str, TestOutcome]) -> str:
    if run.report == "contradicted":
        return f"the run ended with exit code {run.command.exit_code}, which is not what its report says"
    if run.report == "missing" or "timeout" in run.outcomes.values():
        return ""  # a crash looks the same; the rest was not run
    for test, outcome in expected.items():
        found = run.outcomes.get(test, "missing")
        if found != outcome and found != "missing":
            return f"a canary that must have {outcome} has {found}"
        if found == "missing" and run.outcomes:
            return f"a canary that must have {outcome} did not run though other tests did"
    return ""


def canaries(files: tuple[str, ...]) -> tuple[str, bytes, dict[str, TestOutcome]]:
    """A test file beside the task's own: its path, its text, and what must come of each test in it."""
    tests = [name for name in files if name.rpartition("/")[2].startswith("test")] or list(files)
    folder = secrets.choice(tests).rpartition("/")[0]
    names = [f"test_{secrets.token_hex(4)}" for _ in range(6)]
    path = f"{folder}/{names[0]}.py".lstrip("/")
    text = _CANARIES.format(*names, left=secrets.randbelow(1000), klass=f"Test{secrets.token_hex(4)}")
    inside = text[text.index("class ") + 6 : text.index("(unittest")]
    return (
        path,
        text.encode(),
        {
            f"{path}::{names[1]}": "failed",
            f"{path}::{names[2]}": "failed",
            f"{path}::{names[3]}": "failed",
            f"{path}::{names[4]}": "passed",
            f"{path}::{inside}::{names[5]}": "failed",
        },
    )


_CANARIES = """\
import unittest

import pytest


def {1}():
    assert [{left}] == [{left} + 1]


def {2}():
    with pytest.raises(ValueError):
        pass


def {3}():
    raise LookupError({left})


def {4}():
    with pytest.raises(ValueError):
        int("x")


class {klass}(unittest.TestCase):
    def {5}(self):
        self.assertEqual({left}, {left} + 1)
"""
