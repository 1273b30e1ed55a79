"""Run pytest tests in a sandbox and learn what came out of each, past what the code under test prints or exits with.

The reporter (`judge_plugin.py`) is put into the workspace under a random name, its job inside it, and is gone when the
first line of the workspace's own code runs. What it found comes back between markers made for this run alone.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from refork.envs.swe import bytecode
from refork.envs.swe.sandbox.base import PYTHON_ENV, WORKSPACE, CommandResult, Limits, Sandbox

TestOutcome = Literal["passed", "failed", "skipped", "timeout"]
OUTCOMES: dict[str, TestOutcome] = {"p": "passed", "f": "failed", "s": "skipped", "t": "timeout"}
TEST_CPU_S = 2.0
LIMITS = Limits(wall_s=120.0, cpu_s=30, output_bytes=8 << 20)
TRACE_BYTES = 256 << 20
PLUGIN = Path(__file__).with_name("judge_plugin.py")
_PLUGIN_TEXT = PLUGIN.read_text(encoding="utf-8")
OFF = (
    "cacheprovider",
    "faulthandler",
    "junitxml",
    "pastebin",
    "setuponly",
    "setupplan",
    "stepwise",
    "threadexception",
    "unraisableexception",
)
"""Plugins of pytest's own that a judgement does not need; the last two collect garbage five times at the end."""
PRELOAD = (
    *("pytest", "pdb", "hashlib", "pickle", "readline"),
    *(f"_pytest.{name}" for name in ("_argcomplete", "helpconfig", "skipping", "unittest", "warnings")),
)
"""What a warm interpreter imports ahead: all that every run needs."""


@dataclass(frozen=True)
class Failure:
    """What a failing test said: exception type, its message, the test's own line that failed."""

    exception: str
    message: str
    line: str
    frames: tuple[tuple[str, int], ...] = ()
    """Workspace files and lines of the traceback, from the inside out."""


@dataclass(frozen=True)
class TestRun:
    """One run. `outcomes` holds the tests that ran, by node id; what is missing did not run."""

    __test__ = False

    outcomes: Mapping[str, TestOutcome]
    durations: Mapping[str, float]
    """Seconds by node id."""
    failures: Mapping[str, Failure]
    """By node id; filled when texts were asked for."""
    collection_errors: tuple[str, ...]
    """One text per file or class that could not be collected."""
    trace: Mapping[str, Mapping[str, frozenset[int]]]
    """Lines that each test ran, by node id and traced file."""
    imported: Mapping[str, frozenset[int]]
    """Lines that ran before the first test, by traced file."""
    report: Literal["whole", "missing", "contradicted"]
    """`missing`: the run ended without a report; `contradicted`: its exit code is not the one it reported."""
    command: CommandResult

    def passed(self, test: str) -> bool:
        return self.outcomes.get(test) == "passed"


@dataclass(frozen=True)
class TestCommand:
    """How tests are run. All that a run depends on is in here, so equal commands in equal states give equal results."""

    __test__ = False

    tests: tuple[str, ...] | None
    """Node ids; None: all that `paths` hold."""
    paths: tuple[str, ...] = ()
    """Files and folders to collect; empty: those of `tests`."""
    python_path: tuple[str, ...] = ()
    """Workspace folders on sys.path."""
    trace: tuple[str, ...] = ()
    """Workspace files whose lines are traced."""
    frozen: tuple[str, ...] = ()
    """Workspace files and folders whose Python files are read before the code under test could change them."""
    texts: bool = False
    """Whether failures are described."""
    test_cpu_s: float = TEST_CPU_S
    """CPU seconds one test may take; then it is a `timeout`."""
    stop: bool = False
    """Whether the first test that runs out of time ends the run."""
    limits: Limits = LIMITS
    nonce: str | None = None
    """Markers and names of this run; None: random. Fixed only where two runs are to leave equal states."""


def test_files(tests: Sequence[str]) -> tuple[str, ...]:
    """The files of node ids, sorted."""
    return tuple(sorted({test.partition("::")[0] for test in tests}))


def run_tests(sandbox: Sandbox, command: TestCommand) -> TestRun:
    """Run `command` in `sandbox` as it is; what the tests leave behind stays in it, so hand in a throw-away.

    Raises InfraFailure when the sandbox broke. A run that a limit ended is a TestRun without a report.
    """
    nonce = command.nonce or secrets.token_hex(16)
    names = hashlib.sha256(nonce.encode()).hexdigest()  # seen by the code under test, so not to tell of the nonce
    folder, plugin = f"/tmp/{names[:12]}", f"p{names[12:24]}"
    job = {
        "nonce": nonce,
        "folder": folder,
        "tests": None if command.tests is None else list(command.tests),
        "test_cpu_s": command.test_cpu_s,
        "texts": command.texts,
        "stop": command.stop,
        "trace": [f"{WORKSPACE}/{path}" for path in command.trace],
        "workspace": f"{WORKSPACE}/",
        "bytecode": f"{PYTHON_ENV}/{bytecode.FOLDER}",
        "frozen": [f"{WORKSPACE}/{path}" for path in command.frozen],
    }
    text = f"{_PLUGIN_TEXT}\n\npytest_configure = load({json.dumps(job)!r})\n"
    sandbox.put({f"{WORKSPACE}/{plugin}.py": text.encode(), f"{folder}/pytest.ini": b"[pytest]\n"})
    result = sandbox.run(
        _argv(command, folder),
        environment=_environment(command, plugin),
        limits=command.limits,
        warm=True,
    )
    return _read(sandbox, command, result, nonce, folder)


def _argv(command: TestCommand, folder: str) -> list[str]:
    options = [part for name in OFF for part in ("-p", f"no:{name}")]
    options += ["-c", f"{folder}/pytest.ini", f"--rootdir={WORKSPACE}", f"--basetemp={folder}/t"]
    options += ["-q", "--tb=no", "--no-header", "--no-summary", "--continue-on-collection-errors", "--assert=plain"]
    paths = command.paths or test_files(command.tests or ())
    return ["python", "-m", "pytest", *options, *paths]


def path_variable(python_path: Sequence[str]) -> str:
    """PYTHONPATH for workspace folders on sys.path. The workspace itself, '.', is there anyway as `python -m`'s cwd."""
    return ":".join([PYTHON_ENV, *(f"{WORKSPACE}/{path}" for path in python_path if path != ".")])


def _environment(command: TestCommand, plugin: str) -> dict[str, str]:
    """A plugin named by `-p` would be looked for among all installed packages first."""
    path = path_variable(command.python_path)
    return {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": plugin}


def _read(sandbox: Sandbox, command: TestCommand, result: CommandResult, nonce: str, folder: str) -> TestRun:
    parts = result.output.split(nonce)
    if len(parts) != 3 or result.exit_code is None:
        return TestRun({}, {}, {}, (), {}, {}, "missing", result)
    body: dict[str, Any] = json.loads(parts[1])
    tests = body["tests"]
    trace = _trace(sandbox, command, folder) if command.trace else {}
    return TestRun(
        outcomes={name: OUTCOMES[letter] for name, (letter, _, _) in tests.items()},
        durations={name: seconds for name, (_, seconds, _) in tests.items()},
        failures={name: _failure(*text) for name, (_, _, text) in tests.items() if text is not None},
        collection_errors=tuple(body["errors"]),
        imported=trace.pop("", {}),
        trace=trace,
        report="whole" if body["exit"] == result.exit_code else "contradicted",
        command=result,
    )


def _failure(exception: str, message: str, line: str, frames: list[tuple[str, int]]) -> Failure:
    own = [(path.removeprefix(f"{WORKSPACE}/"), number) for path, number in frames if path.startswith(f"{WORKSPACE}/")]
    return Failure(exception, message, line, tuple(own))


def _trace(sandbox: Sandbox, command: TestCommand, folder: str) -> dict[str, dict[str, frozenset[int]]]:
    rows = json.loads(sandbox.get(f"{folder}/trace.json", TRACE_BYTES))
    return {
        test: {command.trace[int(number)]: frozenset(lines) for number, lines in files.items()}
        for test, files in rows.items()
    }
