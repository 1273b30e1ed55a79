"""Rows of the public data sets, read into the same task: columns, images and work trees as each set has them.

Sources: the data cards of SWE-bench, SWE-Gym, SWE-rebench (V1, V2), SWE-smith and R2E-Gym. The reference patch is kept
beside the task, never in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refork.envs.forkable import BadInput
from refork.envs.swe.task_rows import read_rows, strings
from refork.envs.swe.tasks import SWETask

WORK_TREE = "/testbed"
KEPT = ("base_commit", "created_at", "environment_setup_commit")
"""Columns that go into a task's metadata as they are."""
_TIMING = re.compile(r" \[\d+(?:\.\d+)? ?m?s\]$")
_TEST_PATH = re.compile(r"^\+\+\+ b/(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class PublicRow:
    """A task and what belongs to its grading and its solution only."""

    task: SWETask
    reference_patch: str
    """Turns the broken repository into the repaired one (of SWE-smith: in reverse)."""
    reverse: bool
    """Whether `reference_patch` is the bug, so that its reverse is the repair."""
    test_patch: str


@dataclass(frozen=True)
class _Row:
    """One row with its place, for errors that name file, row and column."""

    where: str
    values: Mapping[str, Any]

    def text(self, column: str, default: str | None = None) -> str:
        value = self.values.get(column)
        if value is None and default is not None:
            return default
        if column not in self.values:
            raise BadInput(f"{self.where}, column {column!r}: missing")
        if not isinstance(value, str):
            raise BadInput(f"{self.where}, column {column!r}: text wanted, {value!r} found")
        return value

    def names(self, column: str) -> tuple[str, ...]:
        """A list of tests: a JSON list, or a text that holds one."""
        where = f"{self.where}, column {column!r}"
        if column not in self.values:
            raise BadInput(f"{where}: missing")
        value = self.values[column]
        return strings(parse(value, where) if isinstance(value, str) else value, where)


def parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: not JSON: {error.msg} at character {error.pos + 1}") from error


def swe_bench_image(instance_id: str) -> str:
    """The image that the SWE-bench authors publish for an instance."""
    return f"swebench/sweb.eval.x86_64.{instance_id.lower().replace('__', '_1776_')}"


def swe_gym_image(instance_id: str) -> str:
    """The image that the SWE-Gym authors publish for an instance."""
    return f"xingyaoww/sweb.eval.x86_64.{instance_id.lower().replace('__', '_s_')}"


def without_timing(test: str) -> str:
    """A test name without the duration that some runners append, e.g. ' [1.34 ms]'."""
    return _TIMING.sub("", test)


def _task(row: _Row, image: str, *, work_tree: str = WORK_TREE, **metadata: Any) -> SWETask:
    """What all sets but R2E-Gym have in common."""
    test_patch = row.text("test_patch", "")
    found = {name: row.values[name] for name in KEPT if name in row.values}
    return SWETask(
        instance_id=row.text("instance_id"),
        package=row.text("repo"),
        version=row.text("version", ""),
        kind="dataset",
        base="",
        base_id="",
        problem_statement=row.text("problem_statement", ""),
        fail_to_pass=row.names("FAIL_TO_PASS"),
        pass_to_pass=row.names("PASS_TO_PASS"),
        test_files=tuple(dict.fromkeys(path for path in _TEST_PATH.findall(test_patch) if path != "/dev/null")),
        tests="",
        source_files=(),
        metadata={"image": image, "work_tree": work_tree, **found, **metadata},
    )


def swe_bench(row: _Row) -> PublicRow:
    """SWE-bench, Lite, Verified. Newer rows carry their image, evaluation script and log parser."""
    extra = {name: row.values[name] for name in ("eval_script_list", "log_parser") if name in row.values}
    task = _task(row, row.text("image", swe_bench_image(row.text("instance_id"))), conda="testbed", **extra)
    return PublicRow(task, row.text("patch"), False, row.text("test_patch"))


def swe_gym(row: _Row) -> PublicRow:
    task = _task(row, swe_gym_image(row.text("instance_id")), conda="testbed")
    return PublicRow(task, row.text("patch"), False, row.text("test_patch"))


def swe_rebench(row: _Row) -> PublicRow:
    return _rebench(row, WORK_TREE)


def swe_rebench_v2(row: _Row) -> PublicRow:
    """The work tree is named after the repository, and test names may carry durations."""
    return _rebench(row, f"/{row.text('repo').rpartition('/')[2]}")


def _rebench(row: _Row, work_tree: str) -> PublicRow:
    config = row.values.get("install_config", {})
    if not isinstance(config, dict):
        raise BadInput(f"{row.where}, column 'install_config': object wanted, {config!r} found")
    image = row.text("docker_image", row.text("image_name", ""))
    if not image:
        raise BadInput(f"{row.where}, column 'docker_image': missing, and so is 'image_name'")
    task = _task(row, image, work_tree=work_tree, install_config=config)
    fail_to_pass, pass_to_pass = (
        tuple(without_timing(test) for test in tests) for tests in (task.fail_to_pass, task.pass_to_pass)
    )
    task = replace(task, fail_to_pass=fail_to_pass, pass_to_pass=pass_to_pass)
    return PublicRow(task, row.text("patch"), False, row.text("test_patch"))


def swe_smith(row: _Row) -> PublicRow:
    """`patch` is the bug; the image is the repository's, the instance a branch in it."""
    task = _task(row, row.text("image_name"), branch=row.text("instance_id"))
    return PublicRow(task, row.text("patch"), True, "")


def r2e_gym(row: _Row) -> PublicRow:
    """Reward 1 only if the parsed test map equals `metadata['expected']`."""
    where = f"{row.where}, column 'expected_output_json'"
    expected = parse(row.text("expected_output_json"), where)
    if not isinstance(expected, dict):
        raise BadInput(f"{where}: object wanted, a {type(expected).__name__} found")
    commit = row.text("commit_hash")
    task = SWETask(
        instance_id=f"{row.text('repo_name')}-{commit}",
        package=row.text("repo_name"),
        version="",
        kind="dataset",
        base="",
        base_id="",
        problem_statement=row.text("problem_statement", ""),
        fail_to_pass=tuple(test for test, status in expected.items() if status == "PASSED"),
        pass_to_pass=(),
        test_files=(),
        tests="",
        source_files=(),
        metadata={"image": row.text("docker_image"), "work_tree": WORK_TREE, "base_commit": commit}
        | {"expected": expected},
    )
    return PublicRow(task, "", False, "")


SETS: dict[str, Callable[[_Row], PublicRow]] = {
    reader.__name__: reader for reader in (swe_bench, swe_gym, swe_rebench, swe_rebench_v2, swe_smith, r2e_gym)
}


def read_public(path: Path, data_set: str) -> Iterator[PublicRow]:
    """The rows of a JSON-lines file of one of `SETS`. Raises BadInput: file, row, column, and what is wrong there."""
    if data_set not in SETS:
        raise BadInput(f"no data set {data_set!r}; there are: {', '.join(SETS)}")
    seen: set[str] = set()
    for where, values in read_rows(path):
        row = SETS[data_set](_Row(where, values))
        if row.task.instance_id in seen:
            raise BadInput(f"{where}, column 'instance_id': {row.task.instance_id!r} is there twice")
        if not row.task.fail_to_pass:
            raise BadInput(f"{where}, column 'FAIL_TO_PASS': a task without a failing test has nothing to repair")
        seen.add(row.task.instance_id)
        yield row
