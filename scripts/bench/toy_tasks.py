"""Task sets of one toy package, broken in known places: for tests, and for benches where no task set is built."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.source_edit import Edit, apply
from refork.envs.swe.task_rows import task_to_row, write_jsonl
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import ENVIRONMENT, TASKS, TaskSet

CLEAN = '''"""Small sums."""

LIMIT = 10


def clamp(x, low, high):
    """x, but not outside [low, high]."""
    if x < low:
        return low
    if x > high:
        return high
    return x


def mean(values):
    total = 0
    for value in values:
        total = total + value
    return total / len(values)


def first(values, default=None):
    for value in values:
        return value
    return default


def capped(values):
    return [clamp(value, 0, LIMIT) for value in values]
'''
TESTS = """from calc import capped, clamp, first, mean


def test_low():
    assert clamp(-5, 0, 3) == 0


def test_high():
    assert clamp(5, 0, 3) == 3


def test_inside():
    assert clamp(2, 0, 3) == 2


def test_mean():
    assert mean([1, 2, 6]) == 3


def test_mean_of_one():
    assert mean([4]) == 4


def test_first():
    assert first([7, 8]) == 7


def test_first_of_none():
    assert first([], 1) == 1


def test_capped():
    assert capped([-1, 5, 11]) == [0, 5, 10]
"""
BUGS = {
    "direction": Edit("calc.py", 8, 9, 8, 10, ">"),  # if x > low
    "arithmetic": Edit("calc.py", 18, 22, 18, 23, "-"),  # total - value
    "guard": Edit("calc.py", 10, 4, 11, 19, "pass"),  # no upper limit
}
FAILING = {
    "direction": {"test_low", "test_inside", "test_high", "test_capped"},
    "arithmetic": {"test_mean", "test_mean_of_one"},
    "guard": {"test_high", "test_capped"},
}
NAMES = [line[4:].partition("(")[0] for line in TESTS.splitlines() if line.startswith("def ")]


def toy_tasks(folder: Path, *bugs: str) -> TaskSet:
    """A task set with one task, named after its bugs."""
    return _written(folder, [_task(folder, "toy-" + "-".join(bugs), CLEAN, bugs)])


def toy_set(folder: Path, count: int) -> TaskSet:
    """`count` different tasks with one to three bugs each; none shares a state with another."""
    mixes = [mix for k in range(1, len(BUGS) + 1) for mix in combinations(BUGS, k)]
    return _written(
        folder,
        [_task(folder, f"toy-{i:03d}", f"{CLEAN}\n\nNUMBER = {i}\n", mixes[i % len(mixes)]) for i in range(count)],
    )


def _task(folder: Path, name: str, clean: str, bugs: Sequence[str]) -> SWETask:
    base = folder / "bases" / name
    for below, text in (("calc.py", apply(clean, *(BUGS[b] for b in bugs))), ("tests/test_calc.py", TESTS)):
        for top in (base, *([folder / "tests" / name] if below.startswith("tests") else [])):
            (top / below).parent.mkdir(parents=True, exist_ok=True)
            (top / below).write_text(text)
    failing = set().union(*(FAILING[b] for b in bugs))
    return SWETask(
        instance_id=name,
        package="toy",
        version="1",
        kind="mutation",
        base=f"bases/{name}",
        base_id=digest_tree(base),
        problem_statement="Some tests fail.",
        fail_to_pass=tuple(f"tests/test_calc.py::{n}" for n in NAMES if n in failing),
        pass_to_pass=tuple(f"tests/test_calc.py::{n}" for n in NAMES if n not in failing),
        test_files=("tests/test_calc.py",),
        tests=f"tests/{name}",
        source_files=("calc.py",),
        test_roots=("tests",),
        bugs=len(bugs),
        deterministic=True,
    )


def _written(folder: Path, tasks: Sequence[SWETask]) -> TaskSet:
    (folder / ENVIRONMENT).symlink_to(sysconfig.get_paths()["purelib"])
    write_jsonl(folder / TASKS, [task_to_row(task) for task in tasks])
    return TaskSet.open(folder)


def flaky(tasks: TaskSet) -> SWETask:
    """The same task, but not passed by the determinism audit."""
    return replace(tasks.tasks[0], deterministic=False)
