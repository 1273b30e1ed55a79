"""The determinism audit in real sandboxes: steady tasks pass it, flaky ones are told what gave them away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from refork.envs.swe.audit import Observation, outcome_difference, repeat, state_difference
from refork.envs.swe.recheck import check_taskset
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.task_rows import task_to_row, write_jsonl
from refork.envs.swe.taskset import SOLUTIONS, TASKS, TaskSet
from refork.envs.swe.testrun import TestCommand

from tests.envs.swe.toy import CLEAN, toy_tasks

CHANCE = """
import os

chance = os.urandom(1)[0]
if chance & 1:
    first = len
if chance & 2:
    clamp = len
if chance & 4:
    capped = len
"""
"""Three runs agree once in 64 times or less."""
COMMAND = TestCommand(("tests/test_calc.py::test_low", "tests/test_calc.py::test_mean"))


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    made = OverlayBackend(tmp_path_factory.mktemp("layers"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskSet:
    return toy_tasks(tmp_path_factory.mktemp("tasks"), "arithmetic")


def observed(backend: Backend, tasks: TaskSet, addition: str) -> list[Observation]:
    return repeat(backend, tasks.spec(tasks.tasks[0]), {"calc.py": f"{CLEAN}\n{addition}".encode()}, COMMAND)


def test_a_steady_state_passes(backend: Backend, tasks: TaskSet) -> None:
    runs = observed(backend, tasks, "open('/tmp/left', 'w').write('the same')\n")
    assert [dict(run.outcomes) for run in runs] == [dict.fromkeys(COMMAND.tests or (), "passed")] * 3
    assert outcome_difference(runs) is None
    assert state_difference(runs) is None


def test_a_flaky_outcome_names_the_test(backend: Backend, tasks: TaskSet) -> None:
    runs = observed(backend, tasks, "")
    other = observed(backend, tasks, "def mean(values):\n    return 0\n")
    assert outcome_difference([runs[0], other[0]]) == "tests/test_calc.py::test_mean: passed in run 1, failed in run 2"


def test_a_flaky_state_is_found_though_the_outcomes_agree(backend: Backend, tasks: TaskSet) -> None:
    runs = observed(backend, tasks, "import os\nopen('/tmp/left', 'wb').write(os.urandom(8))\n")
    assert outcome_difference(runs) is None
    assert state_difference(runs) == "the state after run 2 differs from that after run 1"


def test_checking_a_set_finds_the_task_whose_outcome_is_chance(tmp_path: Path, backend: Backend) -> None:
    tasks = toy_tasks(tmp_path, "arithmetic")
    task = tasks.tasks[0]
    base = tasks.base(task) / "calc.py"
    base.write_text(f"{base.read_text()}\n{CHANCE}")
    write_jsonl(tmp_path / TASKS, [task_to_row(replace(task, base_id=digest_tree(tasks.base(task))))])
    (tmp_path / "solved").mkdir()
    (tmp_path / "solved" / "calc.py").write_text(CLEAN)
    write_jsonl(tmp_path / SOLUTIONS, [{"instance_id": task.instance_id, "folder": "solved", "removed": []}])
    reasons = {finding.reason for _ in range(3) for finding in check_taskset(backend, TaskSet.open(tmp_path))}
    assert any(" in run 1, " in reason for reason in reasons), reasons
