"""Task rows: there and back exactly, public data sets as they come, and errors that name file, row and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from refork.envs.forkable import BadInput
from refork.envs.swe.public_rows import read_public
from refork.envs.swe.task_rows import read_tasks, task_to_row, write_jsonl
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

TASK = SWETask(
    instance_id="toolz-0.12.1-m2-0001",
    package="toolz",
    version="0.12.1",
    kind="mutation",
    base="packages/toolz/bases/toolz-0.12.1-m2-0001",
    base_id="ab",
    problem_statement="A test fails: é\n",
    fail_to_pass=("t.py::a",),
    pass_to_pass=(),
    test_files=("t.py",),
    tests="packages/toolz/tests/0.12.1",
    source_files=("toolz/a.py",),
    test_roots=("t.py",),
    python_path=("src",),
    split="held_out",
    bugs=2,
    deterministic=True,
    metadata={"seed": 0},
)


def test_a_row_and_back(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "tasks.jsonl", [task_to_row(TASK)])
    assert read_tasks(tmp_path / "tasks.jsonl") == [TASK]
    assert TaskSet.open(tmp_path).split("held_out") == (TASK,)
    assert TaskSet.open(tmp_path).split("train") == ()


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "mutant"}, "column 'kind': 'mutant' is none of mutation, release_pair, dataset"),
    "type": ({"bugs": "2"}, "column 'bugs': int wanted, '2' found"),
    "boolean": ({"bugs": True}, "column 'bugs': int wanted, True found"),
    "list": ({"fail_to_pass": "t.py::a"}, "column 'fail_to_pass': list of texts wanted, 't.py::a' found"),
    "element": ({"pass_to_pass": ["a", 3]}, "column 'pass_to_pass': element 2 is 3, not a text"),
    "empty": ({"fail_to_pass": []}, "column 'fail_to_pass': a task without a failing test has nothing to repair"),
    "path": ({"base": "../x"}, "column 'base': '../x' is not a path inside its folder"),
    "absolute": ({"test_files": ["/etc/passwd"]}, "column 'test_files': '/etc/passwd' is not a path inside its folder"),
    "unknown": ({"pakage": "x"}, "column 'pakage': no such column; there are: instance_id, package"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_row_is_named_by_file_row_and_column(name: str, tmp_path: Path) -> None:
    change, message = MALFORMED[name]
    path = tmp_path / "tasks.jsonl"
    good = task_to_row(TASK)
    path.write_text(json.dumps({**good, "instance_id": "other"}) + "\n\n" + json.dumps({**good, **change}) + "\n")
    with pytest.raises(BadInput) as error:
        read_tasks(path)
    assert str(error.value).startswith(f"{path}, row 3, {message}")


def test_a_missing_column_a_repeated_id_and_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    row = task_to_row(TASK)
    path.write_text(json.dumps({k: v for k, v in row.items() if k != "base"}))
    with pytest.raises(BadInput, match="row 1, column 'base': missing"):
        read_tasks(path)
    path.write_text(json.dumps(row) + "\n" + json.dumps(row))
    with pytest.raises(BadInput, match=r"row 2, column 'instance_id': 'toolz-0.12.1-m2-0001' is there twice"):
        read_tasks(path)
    path.write_text('{"a": 1,}')
    with pytest.raises(BadInput, match=r"row 1: not JSON: .* at character 9"):
        read_tasks(path)
    path.write_text("[]")
    with pytest.raises(BadInput, match="row 1: a row is a JSON object, this is a list"):
        read_tasks(path)
    path.write_bytes(b"\xff")
    with pytest.raises(BadInput, match="is not UTF-8"):
        read_tasks(path)


def test_no_task_set_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"no task set in {tmp_path}; build one with: refork tasks build"):
        TaskSet.open(tmp_path)
    write_jsonl(tmp_path / "tasks.jsonl", [task_to_row(TASK)])
    with pytest.raises(BadInput, match="no task 'toolz-9'"):
        TaskSet.open(tmp_path).get("toolz-9")


BENCH = {
    "repo": "astropy/astropy",
    "instance_id": "astropy__astropy-12907",
    "base_commit": "d16bfe0",
    "patch": "--- a/x\n",
    "test_patch": "diff --git a/t/test_a.py b/t/test_a.py\n--- a/t/test_a.py\n+++ b/t/test_a.py\n@@ -1 +1 @@\n-a\n+b\n",
    "problem_statement": "It fails.",
    "hints_text": "",
    "created_at": "2022-03-03T15:14:54Z",
    "version": "4.3",
    "FAIL_TO_PASS": '["t/test_a.py::test_x[1 - 2]"]',
    "PASS_TO_PASS": '["t/test_a.py::test_y"]',
    "environment_setup_commit": "298ccb4",
}


def read_one(tmp_path: Path, data_set: str, row: dict[str, Any]) -> Any:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (found,) = read_public(path, data_set)
    return found


def test_swe_bench(tmp_path: Path) -> None:
    row = read_one(tmp_path, "swe_bench", BENCH)
    assert row.task.fail_to_pass == ("t/test_a.py::test_x[1 - 2]",)
    assert row.task.pass_to_pass == ("t/test_a.py::test_y",)
    assert row.task.test_files == ("t/test_a.py",)
    assert row.task.metadata["image"] == "swebench/sweb.eval.x86_64.astropy_1776_astropy-12907"
    assert row.task.metadata["work_tree"] == "/testbed"
    assert row.reference_patch == "--- a/x\n"
    assert "--- a/x" not in json.dumps(task_to_row(row.task))
    newer = read_one(tmp_path, "swe_bench", {**BENCH, "image": "mine:1", "log_parser": "p"})
    assert (newer.task.metadata["image"], newer.task.metadata["log_parser"]) == ("mine:1", "p")


def test_swe_gym_and_smith(tmp_path: Path) -> None:
    gym = read_one(tmp_path, "swe_gym", {**BENCH, "instance_id": "Project-MONAI__MONAI-1"})
    assert gym.task.metadata["image"] == "xingyaoww/sweb.eval.x86_64.project-monai_s_monai-1"
    smith = read_one(tmp_path, "swe_smith", {**BENCH, "image_name": "jyangballin/x", "FAIL_TO_PASS": ["a"]})
    assert smith.reverse
    assert smith.task.metadata["branch"] == "astropy__astropy-12907"
    assert smith.task.metadata["image"] == "jyangballin/x"


def test_swe_rebench(tmp_path: Path) -> None:
    row = {**BENCH, "FAIL_TO_PASS": ["test a [1.34 ms]", "test [b]"], "PASS_TO_PASS": [], "image_name": "i"}
    first = read_one(tmp_path, "swe_rebench", {**row, "docker_image": "d", "install_config": {"install": "x"}})
    assert first.task.metadata["image"] == "d"
    assert first.task.metadata["install_config"] == {"install": "x"}
    second = read_one(tmp_path, "swe_rebench_v2", row)
    assert second.task.metadata["image"] == "i"
    assert second.task.metadata["work_tree"] == "/astropy"
    assert second.task.fail_to_pass == ("test a", "test [b]")


def test_r2e_gym(tmp_path: Path) -> None:
    row = {
        "repo_name": "numpy",
        "commit_hash": "abc",
        "docker_image": "namanjain12/numpy:abc",
        "problem_statement": "x",
        "expected_output_json": '{"test_a": "PASSED", "test_b": "FAILED"}',
    }
    found = read_one(tmp_path, "r2e_gym", row)
    assert found.task.instance_id == "numpy-abc"
    assert found.task.fail_to_pass == ("test_a",)
    assert found.task.metadata["expected"] == {"test_a": "PASSED", "test_b": "FAILED"}


PUBLIC: dict[str, tuple[str, dict[str, Any], str]] = {
    "broken list": ("swe_bench", {"FAIL_TO_PASS": '["a"'}, "column 'FAIL_TO_PASS': not JSON: "),
    "list of numbers": ("swe_gym", {"PASS_TO_PASS": "[1]"}, "column 'PASS_TO_PASS': element 1 is 1, not a text"),
    "text that is a number": ("swe_bench", {"repo": 3}, "column 'repo': text wanted, 3 found"),
    "no image": ("swe_rebench", {}, "column 'docker_image': missing, and so is 'image_name'"),
    "config": ("swe_rebench", {"install_config": "x"}, "column 'install_config': object wanted, 'x' found"),
    "map": ("r2e_gym", {"expected_output_json": "[]"}, "column 'expected_output_json': object wanted, a list found"),
    "no failing test": ("swe_bench", {"FAIL_TO_PASS": "[]"}, "column 'FAIL_TO_PASS': a task without a failing test"),
    "missing": ("swe_smith", {}, "column 'image_name': missing"),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_malformed_public_row_is_named_by_file_row_and_column(name: str, tmp_path: Path) -> None:
    data_set, change, message = PUBLIC[name]
    with pytest.raises(BadInput) as error:
        read_one(tmp_path, data_set, {**BENCH, **change})
    assert str(error.value).startswith(f"{tmp_path / 'rows.jsonl'}, row 1, {message}")


def test_an_unknown_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no data set 'swebench'; there are: swe_bench, swe_gym"):
        list(read_public(tmp_path / "x", "swebench"))
