"""Undoes, before a judgement, what an agent changed that is no repair: tests, and whatever steers the test runner."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from refork.envs.swe.sandbox.base import TMP, WORKSPACE, Entry, Sandbox
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet
from refork.envs.swe.workspace import files_below

STEERING = {
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "sitecustomize.py",
    "usercustomize.py",
    "pyvenv.cfg",
}
"""File names that pytest or the interpreter reads of itself."""


@dataclass(frozen=True)
class Undone:
    """Workspace-relative paths whose change was undone, sorted."""

    paths: tuple[str, ...]


def clean_up(sandbox: Sandbox, task: SWETask, tasks: TaskSet) -> Undone:
    """Undo in `sandbox`, and lay the task's own test files over it. Raises InfraFailure."""
    changes = sandbox.changes
    base = tasks.base(task)
    inside = {path.removeprefix(f"{WORKSPACE}/"): entry for path, entry in changes.items() if path != WORKSPACE}
    workspace = {path: entry for path, entry in inside.items() if not path.startswith("/")}
    forbidden = _shadowing_names(tasks.python_env)
    undo = sorted(path for path, entry in workspace.items() if _must_go(path, entry, task, base, forbidden))
    tests_touched = any(_in_tests(path, task.test_roots) for path in undo)
    gone = [path for path in undo if not _in_tests(path, task.test_roots)]
    gone += task.test_roots if tests_touched or _other_tests(task, tasks) else ()
    if gone or any(path.startswith(f"{TMP}/") for path in changes):
        sandbox.put({**dict.fromkeys(f"{WORKSPACE}/{p}" for p in gone), **dict.fromkeys(_top(changes, TMP))})
        sandbox.put({f"{WORKSPACE}/{path}": text for path, text in _again(gone, task, tasks).items()})
    return Undone(tuple(undo))


def _must_go(path: str, entry: Entry, task: SWETask, base: Path, forbidden: frozenset[str]) -> bool:
    name = path.rpartition("/")[2]
    if _in_tests(path, task.test_roots) or name in STEERING or name.endswith((".pth", ".pyc", ".so")):
        return True
    if entry.kind == "deleted":
        return False
    if entry.kind != "dir" and any(root.startswith(f"{path}/") for root in task.test_roots):
        return True  # a folder above the tests replaced by a link or a file
    top = _module_at_root(path, task.python_path)
    return top in forbidden and not (base / path).exists()


def _in_tests(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _module_at_root(path: str, python_path: tuple[str, ...]) -> str:
    """The top-level module that `path` is or is part of, if a folder on sys.path holds it; '' otherwise."""
    for folder in sorted(python_path, key=len, reverse=True):
        if path.startswith(f"{folder}/"):
            return path.removeprefix(f"{folder}/").partition("/")[0].partition(".")[0]
    return path.partition("/")[0].partition(".")[0]


@lru_cache(maxsize=4)
def _shadowing_names(python_env: Path) -> frozenset[str]:
    """Modules that tests rely on and a workspace module of the same name would hide."""
    installed = {path.name.partition(".")[0] for path in python_env.iterdir()}
    return frozenset({*sys.stdlib_module_names, *installed, "pytest", "_pytest"})


def _top(changes: Iterable[str], root: str) -> Iterator[str]:
    names = {path.removeprefix(f"{root}/").partition("/")[0] for path in changes if path.startswith(f"{root}/")}
    yield from (f"{root}/{name}" for name in sorted(names))


def _other_tests(task: SWETask, tasks: TaskSet) -> bool:
    """Whether grading's tests are not those of the workspace an agent sees."""
    return task.kind == "release_pair"


def _again(gone: Iterable[str], task: SWETask, tasks: TaskSet) -> dict[str, bytes]:
    """What stands, after `gone` was removed, in its place: the task's tests, and the base's own files elsewhere."""
    gone = list(gone)
    texts: dict[str, bytes] = {}
    if set(task.test_roots) <= set(gone):
        texts |= tasks.test_texts(task)
    base = tasks.base(task)
    for path in files_below(base, [path for path in gone if not _in_tests(path, task.test_roots)]):
        if not _in_tests(path, task.test_roots):
            texts[path] = (base / path).read_bytes()
    return texts
