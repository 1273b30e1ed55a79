"""A real release pair, from the package index to its grade."""

from __future__ import annotations

from pathlib import Path

import pytest
from refork.envs.forkable import Reward
from refork.envs.swe.built import Built, Part
from refork.envs.swe.download import Pin, fetch
from refork.envs.swe.grading import judge
from refork.envs.swe.recipe import read_recipes
from refork.envs.swe.release_pairs import release_pair
from refork.envs.swe.sandbox.base import WORKSPACE
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.task_rows import task_to_row, write_jsonl
from refork.envs.swe.taskset import TASKS, TaskSet

from tests.envs.swe.toy_index import toy_environment


@pytest.mark.slow
def test_more_itertools_9_1_0_to_10_0_0(tmp_path: Path) -> None:
    (recipe,) = read_recipes(packages=("more-itertools",))
    (pair,) = (pair for pair in recipe.pair if pair.before == "9.1.0")
    pins = [Pin("more-itertools", "9.1.0", pair.before_sha256), Pin("more-itertools", "10.0.0", pair.after_sha256)]
    fetched = fetch(pins, tmp_path / "downloads")
    assert fetched.errors == {}
    toy_environment(tmp_path / "set")
    backend = OverlayBackend(tmp_path / "layers")
    try:
        built = release_pair(backend, recipe, pair, fetched.files, tmp_path / "work", tmp_path / "set" / "env")
        assert isinstance(built, Built)
        assert (len(built.fail_to_pass), len(built.pass_to_pass)) == (28, 568)
        assert "tests/test_more.py::SeekableTest::test_relative_seek" in built.fail_to_pass
        assert built.uncached == ""
        part = Part(tmp_path / "set" / "packages" / "p", "packages/p")
        part.write_tests(built.judge)
        task, _ = part.write(built, "train")
        write_jsonl(tmp_path / "set" / TASKS, [task_to_row(task)])
        tasks = TaskSet.open(tmp_path / "set")
        with backend.open(tasks.spec(task)) as sandbox:
            assert sandbox.get(f"{WORKSPACE}/tests/test_more.py", 1 << 20).count(b"relative_seek") == 0
            assert judge(sandbox, task, tasks).outcome == Reward(0.0)
            sandbox.put({f"{WORKSPACE}/{path}": text for path, text in built.solution.items()})
            verdict = judge(sandbox, task, tasks)
            assert verdict.outcome == Reward(1.0), verdict.not_passed
    finally:
        backend.close()
