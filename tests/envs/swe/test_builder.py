"""Building a task set from source distributions, with real sandboxes and a package index in a folder."""

from __future__ import annotations

import json
import shutil
import time
from io import StringIO
from pathlib import Path

import pytest
from refork.envs.forkable import BadInput, InfraFailure
from refork.envs.swe import builder
from refork.envs.swe.builder import BuildReport, build_taskset
from refork.envs.swe.download import Pin, fetch
from refork.envs.swe.listing import fates_table, quarantined, table
from refork.envs.swe.recheck import Finding, check_taskset, solution_files, solutions
from refork.envs.swe.recipe import read_environment, read_recipes
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.task_rows import task_to_row, write_jsonl
from refork.envs.swe.taskset import TaskSet
from refork.envs.swe.workspace import files_below
from rich.console import Console

from tests.envs.swe.toy import CLEAN, TESTS
from tests.envs.swe.toy_index import NAME, OLD, sdist, toy_environment, toy_index, toy_recipe


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def built(place: Path) -> BuildReport:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFORK_HOME", str(place / "home"))
        toy_recipe(place / "recipes", toy_index(place / "index", patch))
        toy_environment(place / "set")
        return build_taskset(place / "set", jobs=1, recipes=place / "recipes", progress=lambda text: None)


@pytest.fixture(scope="module")
def tasks(place: Path, built: BuildReport) -> TaskSet:
    return TaskSet.open(place / "set")


def test_what_was_asked_for_is_built(built: BuildReport, tasks: TaskSet) -> None:
    assert (built.built, built.kept, built.failures, built.tasks) == ((NAME,), (), {}, 5)
    assert [task.instance_id for task in tasks.tasks] == [
        *(f"{NAME}-1.0-m1-000{i}" for i in (1, 2, 3)),
        f"{NAME}-1.0-m2-0001",
        f"{NAME}-0.9-1.0",
    ]
    assert [task.bugs for task in tasks.tasks] == [1, 1, 1, 2, 0]
    assert {task.split for task in tasks.tasks} == {"validation"}
    assert all(task.deterministic for task in tasks.tasks)
    assert quarantined(tasks) == []


def test_a_mutation_task_is_the_package_with_bugs_and_nothing_of_the_clean_text(tasks: TaskSet) -> None:
    rows = solutions(tasks)
    for task in (task for task in tasks.tasks if task.kind == "mutation"):
        base = tasks.base(task)
        assert files_below(base) == ["PKG-INFO", "calc.py", "tests/test_calc.py"]
        broken = (base / "calc.py").read_text()
        bugs = rows[task.instance_id]["mutations"]
        assert len(bugs) == task.bugs
        assert len({bug["start_line"] for bug in bugs}) == task.bugs
        changed = [n for n, (a, b) in enumerate(zip(broken.split("\n"), CLEAN.split("\n"), strict=False), 1) if a != b]
        if all(bug["operator"] != "guard" for bug in bugs):
            assert changed == sorted(bug["start_line"] for bug in bugs)
        assert (base / "tests" / "test_calc.py").read_text() == TESTS
        assert set(task.fail_to_pass) & set(task.pass_to_pass) == set()
        assert "calc.py" not in json.dumps(task.metadata)
        assert solution_files(tasks, rows[task.instance_id]) == {"calc.py": CLEAN.encode()}


def test_a_release_pair_holds_the_old_code_and_is_judged_by_the_new_tests(tasks: TaskSet) -> None:
    task = tasks.get(f"{NAME}-0.9-1.0")
    assert (tasks.base(task) / "calc.py").read_text() == OLD
    assert tasks.test_texts(task) == {"tests/test_calc.py": TESTS.encode()}
    # the new tests import `first`, which the old code lacks: none of them can be collected
    assert len(task.fail_to_pass) == 8
    assert task.pass_to_pass == ()
    assert task.problem_statement.startswith(f"8 tests of version 1.0 fail with {NAME} 0.9.")


def test_the_report_says_what_fails_not_where_the_bug_is(tasks: TaskSet) -> None:
    task = tasks.tasks[0]
    first = task.problem_statement.split("\n\n")[1]
    assert first.startswith(f"`{task.fail_to_pass[0]}` fails with ")
    assert "calc.py" not in task.problem_statement.replace("test_calc.py", "")


def test_checking_finds_nothing_until_a_base_is_changed(place: Path, tasks: TaskSet) -> None:
    backend = OverlayBackend(place / "layers")
    try:
        checked = check_taskset(backend, tasks, sample=3, seed=0)
        assert {f.instance_id for f in checked} > {f"{NAME}-0.9-1.0"}
        assert [f.reason for f in checked] == [""] * 3
        copy = place / "changed"
        shutil.copytree(tasks.folder, copy, symlinks=True)
        task = tasks.tasks[0]
        (copy / task.base / "calc.py").unlink()
        (copy / task.base / "calc.py").write_text(CLEAN)
        write_jsonl(copy / "tasks.jsonl", [task_to_row(task)])
        reason = f"{task.base} was changed after it was built"
        assert check_taskset(backend, TaskSet.open(copy)) == [Finding(task.instance_id, reason)]
    finally:
        backend.close()


def test_building_again_does_nothing_and_an_interrupted_build_goes_on(
    place: Path, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "fetch", None)  # nothing may be downloaded
    start = time.monotonic()
    again = build_taskset(place / "set", recipes=place / "recipes")
    assert time.monotonic() - start < 1
    assert (again.built, again.kept, again.tasks) == ((), (NAME,), 5)
    (place / "set" / "tasks.jsonl").unlink()  # killed after the last part was whole, before the parts were merged
    assert build_taskset(place / "set", recipes=place / "recipes").tasks == 5


def test_what_a_killed_build_left_is_removed_and_a_package_that_cannot_be_had_is_listed(
    place: Path, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place / "empty"))
    folder, recipes = place / "copy", place / "recipes2"
    (place / "empty").mkdir()
    shutil.copytree(place / "set", folder, symlinks=True, ignore=shutil.ignore_patterns("downloads"))
    (folder / "packages" / ".other").mkdir()
    shutil.copytree(place / "recipes", recipes)
    (recipes / "other.toml").write_text((recipes / f"{NAME}.toml").read_text().replace(NAME, "reforkother"))
    report = build_taskset(folder, recipes=recipes, progress=lambda text: None)
    assert report.kept == (NAME,)
    assert list(report.failures) == ["reforkother"]
    assert "reforkother 1.0" in report.failures["reforkother"]
    assert report.tasks == 5
    assert not (folder / "packages" / ".other").exists()


def test_another_file_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = toy_index(tmp_path / "index", monkeypatch)
    pin = Pin(NAME, "1.0", digests["1.0"])
    got = fetch([pin], tmp_path / "downloads")
    assert got.errors == {}
    assert got.files[pin].name == f"{NAME}-1.0-{digests['1.0'][:12]}.tar.gz"
    assert fetch([pin], tmp_path / "downloads") == got
    other = sdist(tmp_path / "index", "1.0", {"calc.py": "evil\n"})
    again = fetch([pin], tmp_path / "downloads2")
    assert again.files == {}
    assert again.errors[pin] == (
        f"{NAME}-1.0.tar.gz has sha256 {other}, the recipe says {digests['1.0']}: not the released file"
    )
    assert list((tmp_path / "downloads2").iterdir()) == []


def test_a_pip_that_cannot_run_is_an_infrastructure_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refork.envs.swe.download.sys.executable", "/bin/false")
    with pytest.raises(InfraFailure, match="pip of /bin/false cannot download"):
        fetch([Pin(NAME, "1.0", "0")], tmp_path)


def test_wrong_recipes_are_named_by_file_and_key(tmp_path: Path) -> None:
    toy_recipe(tmp_path, {"1.0": "a", "0.9": "b"}, extra='spilt = "train"')
    with pytest.raises(BadInput, match=f"{NAME}.toml: spilt: Extra inputs are not permitted"):
        read_recipes(tmp_path)
    (tmp_path / f"{NAME}.toml").write_text("package = ")
    with pytest.raises(BadInput, match=f"{NAME}.toml: Invalid value"):
        read_recipes(tmp_path)
    with pytest.raises(BadInput, match=f"no recipe for package 'tolz'; there are: {NAME}"):
        read_recipes(tmp_path, ("tolz",))


def test_the_shipped_recipes_are_enough_and_split_by_package() -> None:
    recipes = read_recipes()
    assert len([r for r in recipes if r.mutation]) >= 6
    wanted = [r.mutation for r in recipes if r.mutation]
    assert sum(m.one + m.two + m.three for m in wanted) >= 200
    assert sum(len(r.pair) for r in recipes) >= 10
    assert {r.split for r in recipes} == {"train", "validation", "held_out"}
    installed = {pin.partition("==")[0] for pin in read_environment().requirements}
    assert installed & {r.package for r in recipes} == set()
    assert all("==" in pin for pin in read_environment().requirements)


def test_the_listing_counts_tasks_and_what_became_of_mutations(tasks: TaskSet) -> None:
    console = Console(file=StringIO(), width=120, color_system=None)
    with console.capture() as capture:
        console.print(table(tasks.tasks))
        console.print(fates_table({"p": {"fates": {"guard killed": 3, "guard survived": 1, "guard uncovered": 5}}}))
    words = [line.split() for line in capture.get().replace("│", " ").splitlines()]
    assert [NAME, "validation", "3", "1", "1", "5", "5"] in words
    assert ["guard", "3", "1", "0", "0", "5", "25%"] in words
