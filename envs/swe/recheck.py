"""Audits a built task set again: the same runs as when it was built, and the judgement of both ends."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from refork.envs.forkable import BadInput, Outcome, Reward
from refork.envs.swe.audit import Observation, outcome_difference, repeat, state_difference
from refork.envs.swe.grading import grade
from refork.envs.swe.sandbox.base import WORKSPACE, Backend
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.task_rows import read_rows
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import SOLUTIONS, TaskSet
from refork.envs.swe.testrun import TestCommand
from refork.envs.swe.workspace import files_below

Files = dict[str, bytes | None]


@dataclass(frozen=True)
class Finding:
    """What checking one task found; `reason` is empty when it passed."""

    instance_id: str
    reason: str


def solution_files(tasks: TaskSet, row: dict[str, Any]) -> Files:
    """What the reference solution in a row of solutions.jsonl puts into the workspace; None: removed."""
    folder = tasks.folder / row["folder"]
    return {
        **dict.fromkeys(row["removed"]),
        **{path: (folder / path).read_bytes() for path in files_below(folder)},
    }


def solutions(tasks: TaskSet) -> dict[str, dict[str, Any]]:
    """Rows of solutions.jsonl by task. For building and checking; nothing that an agent uses may call it."""
    return {row["instance_id"]: row for _, row in read_rows(tasks.folder / SOLUTIONS)}


def check_taskset(backend: Backend, tasks: TaskSet, sample: int = 0, seed: int = 0) -> list[Finding]:
    """Check all tasks, or `sample` drawn by `seed`. Raises InfraFailure, BadInput."""
    chosen = list(tasks.tasks)
    if 0 < sample < len(chosen):
        chosen = random.Random(seed).sample(chosen, sample)
    known = solutions(tasks)
    if missing := [task.instance_id for task in chosen if task.instance_id not in known]:
        raise BadInput(f"{tasks.folder / SOLUTIONS}: no row for task {missing[0]!r}")
    return [
        Finding(task.instance_id, _check(backend, tasks, task, solution_files(tasks, known[task.instance_id])))
        for task in chosen
    ]


def _check(backend: Backend, tasks: TaskSet, task: SWETask, solution: Files) -> str:
    if digest_tree(tasks.base(task)) != task.base_id:
        return f"{task.base} was changed after it was built"
    empty, solved = (_observe(backend, tasks, task, files) for files in ({}, solution))
    return (
        outcome_difference(empty)
        or outcome_difference(solved)
        or _uncached(task, empty, solved)
        or _graded(backend, tasks, task, {}, Reward(0.0))
        or _graded(backend, tasks, task, solution, Reward(1.0))
        or ""
    )


def _observe(backend: Backend, tasks: TaskSet, task: SWETask, files: Files) -> list[Observation]:
    tests: Files = {**dict.fromkeys(files_below(tasks.base(task), task.test_roots)), **tasks.test_texts(task)}
    command = TestCommand(task.tests_run, python_path=task.python_path)
    return repeat(backend, tasks.spec(task), {**files, **tests}, command)


def _uncached(task: SWETask, *observed: list[Observation]) -> str | None:
    reason = next((found for runs in observed if (found := state_difference(runs))), None)
    return reason if task.deterministic else None


def _graded(backend: Backend, tasks: TaskSet, task: SWETask, files: Files, expected: Outcome) -> str | None:
    with backend.open(tasks.spec(task)) as sandbox:
        sandbox.put({f"{WORKSPACE}/{path}": data for path, data in files.items()})
        found = grade(sandbox, task, tasks)
    name = "reference solution" if files else "empty change"
    return None if found == expected else f"the {name} is graded {found}, not {expected}"
