"""Grading in a real sandbox: repairs get 1, and everything short of a repair 0, however it dresses up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from refork.envs.forkable import InfraError, InfraFailure, Reward, Timeout
from refork.envs.swe.grading import Verdict, grade, judge
from refork.envs.swe.sandbox.base import Backend, Limits, Sandbox
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

from tests.envs.swe.toy import CLEAN, toy_tasks

BROKEN = CLEAN.replace("if x < low", "if x > low")
TEST_FILE = "/testbed/tests/test_calc.py"
PASSES = b"".join(
    f"def test_{n}():\n    pass\n".encode()
    for n in ("low", "high", "inside", "mean", "mean_of_one", "first", "first_of_none", "capped")
)
HOOK = b"""
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome = "passed"
    return report
"""


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    made = OverlayBackend(tmp_path_factory.mktemp("layers"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskSet:
    return toy_tasks(tmp_path_factory.mktemp("tasks"), "direction")


@pytest.fixture
def sandbox(backend: Backend, tasks: TaskSet) -> Iterator[Sandbox]:
    with backend.open(tasks.spec(tasks.tasks[0])) as opened:
        yield opened


def judged(sandbox: Sandbox, tasks: TaskSet, limits: Limits | None = None) -> Verdict:
    task = tasks.tasks[0]
    return judge(sandbox, task, tasks, limits) if limits else judge(sandbox, task, tasks)


def test_the_reference_solution_gets_1_and_the_state_is_not_disturbed(sandbox: Sandbox, tasks: TaskSet) -> None:
    sandbox.put({"/testbed/calc.py": CLEAN.encode()})
    before = sandbox.state_id
    assert grade(sandbox, tasks.tasks[0], tasks) == Reward(1.0)
    assert sandbox.state_id == before


def test_the_empty_change_gets_0_and_the_failing_tests_are_named(sandbox: Sandbox, tasks: TaskSet) -> None:
    verdict = judged(sandbox, tasks)
    assert verdict.outcome == Reward(0.0)
    assert verdict.not_passed == tasks.tasks[0].fail_to_pass
    assert verdict.cheat == ""
    assert verdict.undone == ()


def test_a_repair_counts_whatever_was_done_to_the_tests(sandbox: Sandbox, tasks: TaskSet) -> None:
    sandbox.put({"/testbed/calc.py": CLEAN.encode(), TEST_FILE: b"def test_low():\n    assert 0\n"})
    verdict = judged(sandbox, tasks)
    assert verdict.outcome == Reward(1.0)
    assert verdict.undone == ("tests/test_calc.py",)


EDITED: dict[str, dict[str, bytes | None]] = {
    "tests edited": {TEST_FILE: PASSES},
    "tests deleted": {TEST_FILE: None},
    "conftest at the root": {"/testbed/conftest.py": HOOK},
    "conftest in the tests": {"/testbed/tests/conftest.py": HOOK},
    "plugin by pytest.ini": {"/testbed/pytest.ini": b"[pytest]\naddopts = -p hook\n", "/testbed/hook.py": HOOK},
    "plugin by setup.cfg": {"/testbed/setup.cfg": b"[tool:pytest]\naddopts = -p hook\n", "/testbed/hook.py": HOOK},
    "plugin by pyproject": {
        "/testbed/pyproject.toml": b'[tool.pytest.ini_options]\naddopts = "-p hook"\n',
        "/testbed/hook.py": HOOK,
    },
    "pytest hidden": {"/testbed/pytest.py": b"raise SystemExit(0)\n"},
    "pytest's package hidden": {"/testbed/_pytest/__init__.py": b"raise SystemExit(0)\n"},
    "standard library hidden": {"/testbed/unittest/__init__.py": b"import os\nos._exit(0)\n"},
    "sitecustomize": {"/testbed/sitecustomize.py": b"import os\nos._exit(0)\n"},
    "user site": {"/tmp/.local/lib/python3.11/site-packages/usercustomize.py": b"import os\nos._exit(0)\n"},
}


@pytest.mark.parametrize("name", EDITED)
def test_files_that_cheat_get_0(name: str, sandbox: Sandbox, tasks: TaskSet) -> None:
    sandbox.put(EDITED[name])
    verdict = judged(sandbox, tasks)
    assert verdict.outcome == Reward(0.0)
    assert verdict.not_passed == tasks.tasks[0].fail_to_pass
    sandbox.put({"/testbed/calc.py": CLEAN.encode()})
    assert judged(sandbox, tasks).outcome == Reward(1.0)  # what cheats is undone, not held against a repair


IMPORTED = {
    "os._exit": ("import os\nos._exit(0)\n", ""),
    "sys.exit": ("import sys\nsys.exit(0)\n", ""),
    "fake output": (
        "import os\nos.write(1, b'tests/test_calc.py::test_low PASSED\\n8 passed in 0.01s\\n')\nos._exit(0)\n",
        "",
    ),
    "exit at the end": ("import atexit, os\natexit.register(os._exit, 0)\n", "exit code 0"),
    "reports rewritten": (
        "from _pytest.reports import TestReport\n"
        "old = TestReport.from_item_and_call\n"
        "def new(item, call):\n    call.excinfo = None\n    return old(item, call)\n"
        "TestReport.from_item_and_call = staticmethod(new)\n",
        "a canary that must have failed has passed",
    ),
    "tests not run": (
        "from _pytest.python import Function\nFunction.runtest = lambda self: None\n",
        "a canary that must have failed has passed",
    ),
    "assertions off": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n",
        "a canary that must have failed has passed",
    ),
    "raises off": (
        "import contextlib, pytest\npytest.raises = lambda *a: contextlib.suppress(BaseException)\n",
        "a canary that must have failed has passed",
    ),
    "test file replaced on import": (
        f"import os\nif os.path.exists('/testbed/tests'):\n    open('{TEST_FILE}', 'wb').write({PASSES!r})\n",
        "",
    ),
    "report replaced": (
        "import json, os\n"
        "write = os.write\n"
        "def new(fd, data):\n    return write(fd, data.replace(b'[\"f\"', b'[\"p\"'))\n"
        "os.write = new\n"
        "dumps = json.dumps\n"
        "json.dumps = lambda *a, **k: dumps(*a, **k).replace('[\"f\"', '[\"p\"')\n",
        "",
    ),
    "expected failure": ("import pytest\ndef clamp(x, low, high):\n    pytest.xfail('hm')\n", ""),
    "skipped": ("import pytest\ndef clamp(x, low, high):\n    pytest.skip('hm')\n", ""),
    "skipped by unittest": ("import unittest\ndef clamp(x, low, high):\n    raise unittest.SkipTest\n", ""),
    "endless": ("def clamp(x, low, high):\n    while True:\n        pass\n", ""),
    "endless at import": ("while True:\n    pass\n", ""),
}


@pytest.mark.parametrize("name", IMPORTED)
def test_code_that_cheats_gets_0(name: str, sandbox: Sandbox, tasks: TaskSet) -> None:
    text, cheat = IMPORTED[name]
    sandbox.put({"/testbed/calc.py": f"{BROKEN}\n{text}".encode()})
    verdict = judged(sandbox, tasks, Limits(wall_s=100.0, cpu_s=3, output_bytes=8 << 20))
    assert verdict.outcome == Reward(0.0)
    assert cheat in verdict.cheat if cheat else verdict.cheat == ""


SHELL = {
    "tests behind a link": "mv tests /tmp/t && ln -s /tmp/t tests && sed -i 's/assert .*/pass/' tests/test_calc.py",
    "tests locked": "chmod 000 tests/test_calc.py tests",
    "stale byte-code": "python -m compileall -q tests && sed -i 's/assert .*/pass/' tests/test_calc.py",
    "a pipe for a test": "rm tests/test_calc.py && mkfifo tests/test_calc.py",
    "a folder for a test": "rm tests/test_calc.py && mkdir -p tests/test_calc.py/x",
}


@pytest.mark.parametrize("name", SHELL)
def test_shell_tricks_get_0_and_do_not_break_grading(name: str, sandbox: Sandbox, tasks: TaskSet) -> None:
    assert sandbox.run(["sh", "-c", SHELL[name]]).exit_code == 0
    assert judged(sandbox, tasks).outcome == Reward(0.0)
    sandbox.put({"/testbed/calc.py": CLEAN.encode()})
    assert judged(sandbox, tasks).outcome == Reward(1.0)


@pytest.mark.parametrize(
    "command", ["chmod 000 /testbed", "chmod 000 calc.py", "rm calc.py && mkfifo calc.py", "rm -r *"]
)
def test_a_workspace_made_unusable_is_a_failure_of_the_agent(command: str, sandbox: Sandbox, tasks: TaskSet) -> None:
    assert sandbox.run(["sh", "-c", command]).exit_code == 0
    assert judged(sandbox, tasks).outcome == Reward(0.0)


def test_the_deadline_of_grading_is_its_own(sandbox: Sandbox, tasks: TaskSet) -> None:
    sandbox.put({"/testbed/calc.py": f"{CLEAN}\nimport time\ntime.sleep(60)\n".encode()})
    assert judged(sandbox, tasks, Limits(wall_s=1.5)).outcome == Timeout("grading")


def test_a_broken_sandbox_is_no_reward(sandbox: Sandbox, tasks: TaskSet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Sandbox:
        raise InfraFailure("no space left")

    monkeypatch.setattr(sandbox, "fork", broken)
    assert grade(sandbox, tasks.tasks[0], tasks) == InfraError("grading toy-direction: no space left")


def test_a_missing_test_is_a_failure(sandbox: Sandbox, tmp_path: Path) -> None:
    tasks = toy_tasks(tmp_path, "direction")
    rows = (tmp_path / "tasks.jsonl").read_text().replace("::test_low", "::test_nowhere")
    (tmp_path / "tasks.jsonl").write_text(rows)
    task: SWETask = TaskSet.open(tmp_path).tasks[0]
    sandbox.put({"/testbed/calc.py": CLEAN.encode()})
    verdict = judge(sandbox, task, tasks)
    assert verdict.outcome == Reward(0.0)
    assert verdict.not_passed == ("tests/test_calc.py::test_nowhere",)
