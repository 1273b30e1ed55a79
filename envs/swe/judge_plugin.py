"""The pytest plugin that reports a test run from inside a sandbox. Never imported here: its text is put there.

It lies under a random name, with a last line `pytest_configure = load(JOB)`. It deletes itself when pytest loads it,
which is before any code of the workspace runs, and at the end writes one line between markers that only the caller
knows, to the descriptor that was standard output at the start. Standard library and pytest only.
"""

from __future__ import annotations

import _imp
import atexit
import hashlib
import importlib.machinery
import json
import linecache
import marshal
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

MESSAGE_CHARS = 300
FRAMES = 20
IMPORTS = ""
"""The name under which lines run before the first test are traced."""
DUMPS, WRITE, EXIT = json.dumps, os.write, os._exit
"""Taken before the code under test could replace them."""
LETTERS = {"passed": "p", "failed": "f", "skipped": "s", "timeout": "t"}


class OutOfTime(BaseException):
    """One test used up its CPU time; not an Exception, so that the code under test does not catch it by chance."""


class Tracer:
    """Which lines of some files each test runs. What has run all of its lines in a test is traced no further in it."""

    def __init__(self, files: list[str]) -> None:
        self.numbers = {name: str(i) for i, name in enumerate(files)}
        self.codes: dict[int, tuple[CodeType, int]] = {}
        """Code of these files by id, held so that no id is given twice, with how many lines it has."""
        self.tests: dict[str, dict[int, Traced]] = {}
        self.traced: dict[int, Traced] = {}

    def start(self, test: str) -> None:
        self.traced = self.tests.setdefault(test, {})
        threading.settrace(self.enter)
        sys.settrace(self.enter)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def enter(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self.numbers:
            return None
        traced = self.traced.get(id(code)) or self.add(code)
        traced.seen.add(frame.f_lineno)
        return None if len(traced.seen) == traced.total else traced.line

    def add(self, code: CodeType) -> Traced:
        if id(code) not in self.codes:
            self.codes[id(code)] = code, len({number for _, _, number in code.co_lines() if number is not None})
        return self.traced.setdefault(id(code), Traced(self.codes[id(code)][1]))

    def report(self) -> dict[str, dict[str, list[int]]]:
        return {test: self.by_file(traced) for test, traced in self.tests.items()}

    def by_file(self, traced: dict[int, Traced]) -> dict[str, list[int]]:
        files: dict[str, set[int]] = {}
        for key, one in traced.items():
            files.setdefault(self.numbers[self.codes[key][0].co_filename], set()).update(one.seen)
        return {number: sorted(lines) for number, lines in files.items()}


class Traced:
    """The lines of one code object that one test ran, and the function that traces the rest."""

    __slots__ = ("line", "seen", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.seen = seen = set[int]()

        def line(frame: FrameType, event: str, arg: object) -> None:
            if event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                if len(seen) == total:
                    frame.f_trace = None

        self.line = line  # it answers nothing, which leaves a frame's tracer as it is


class Judge:
    """Selects the tests, limits each one's CPU time, keeps what came out, writes the report."""

    def __init__(self, job: dict[str, Any], folder: Path, out: int) -> None:
        self.nonce, self.folder, self.out = str(job["nonce"]), folder, out
        self.cpu_s = float(job["test_cpu_s"])
        self.wanted = None if job["tests"] is None else set(job["tests"])
        self.ways = {way for test in self.wanted or () for way in ways(test)}
        self.texts, self.stop = bool(job["texts"]), bool(job["stop"])
        self.tracer = Tracer(job["trace"]) if job["trace"] else None
        self.tests: dict[str, list[Any]] = {}
        self.errors: list[str] = []
        self.exit: int | None = None

    def about_to_run(self, path: str) -> None:
        """A module of the workspace is being imported: nothing was worth tracing before the first of those traced."""
        if self.tracer and not self.tracer.tests and path in self.tracer.numbers:
            self.tracer.start(IMPORTS)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, collector: pytest.Collector, name: str) -> list[pytest.Item] | None:
        """Nothing, at once, for what holds no wanted test; the order of the rest is pytest's own."""
        skip = self.wanted is not None and f"{collector.nodeid}::{name}" not in self.ways
        return [] if skip else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.wanted is not None:
            items[:] = [item for item in items if item.nodeid in self.wanted]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {str(report.longrepr)[-MESSAGE_CHARS:]}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        def late(signum: int, frame: FrameType | None) -> None:
            raise OutOfTime(f"more than {self.cpu_s} s of CPU time")

        signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, self.cpu_s, self.cpu_s)
        for name in ("repr_failure", "_repr_failure_py"):
            setattr(item, name, no_text)
        if self.tracer:
            self.tracer.start(item.nodeid)
        try:
            return (yield)
        finally:
            if self.tracer:
                self.tracer.stop()
            signal.setitimer(signal.ITIMER_PROF, 0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        outcome: str = report.outcome  # an expected failure is "skipped": the code under test can ask for one
        if outcome == "failed" and call.excinfo is not None and call.excinfo.errisinstance(OutOfTime):
            outcome = "timeout"
            item.session.shouldstop = self.stop and "out of time"
        before = self.tests.setdefault(item.nodeid, ["", 0.0, None])
        before[1] += report.duration
        if before[0] in ("", "passed") or outcome in ("failed", "timeout"):
            before[0] = outcome
        if self.texts and outcome != "passed" and before[2] is None and call.excinfo is not None:
            before[2] = describe(item, call.excinfo)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        tests = {name: [LETTERS[o], round(s, 4), text] for name, (o, s, text) in self.tests.items()}
        body = DUMPS({"tests": tests, "errors": self.errors, "exit": int(exitstatus)})
        if self.tracer:
            (self.folder / "trace.json").write_text(json.dumps(self.tracer.report()))
        data = f"\n{self.nonce}{body}{self.nonce}\n".encode()
        while data:
            data = data[WRITE(self.out, data) :]
        self.exit = int(exitstatus)

    def leave(self) -> None:
        """End the process where the interpreter would take itself apart, which changes nothing any more."""
        if self.exit is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            EXIT(self.exit)


def no_text(*args: object, **options: object) -> str:
    """pytest's own account of a failure, which nobody reads and which takes longer than most tests."""
    return ""


def ways(test: str) -> list[str]:
    """Node ids of the classes and of the function that lead to a test."""
    parts = test.partition("[")[0].split("::")
    return ["::".join(parts[: i + 1]) for i in range(1, len(parts))]


def describe(item: pytest.Item, error: pytest.ExceptionInfo[BaseException]) -> list[Any]:
    """[exception type, its message, the test's own line that failed, [[file, line], ...] from the inside out]."""
    own = [entry for entry in error.traceback if entry.path == item.path]
    line = linecache.getline(str(own[-1].path), own[-1].lineno + 1).strip() if own else ""
    frames = [[str(entry.path), entry.lineno + 1] for entry in reversed(error.traceback)][:FRAMES]
    return [error.type.__name__, str(error.value)[:MESSAGE_CHARS], line[:MESSAGE_CHARS], frames]


def take_over_imports(workspace: str, frozen: list[str], store: str, watch: Callable[[str], None]) -> None:
    """Import the workspace's modules by what is in them: cached byte-code only from `store`, named by the source's
    digest, never from where the workspace's own code could have put some. What is in `frozen` is read now, and what
    happens to it on disk later counts for nothing. `watch` is told of each file before its code runs."""
    files = [path for root in frozen for path in (Path(root).rglob("*.py") if Path(root).is_dir() else [Path(root)])]
    texts = {str(path): path.read_bytes() for path in files}
    loader: Any = importlib.machinery.SourceFileLoader
    usual = loader.get_code
    rename: Any = getattr(_imp, "_fix_co_filename")  # noqa: B009 - no type stub knows it
    digest, read, join = hashlib.sha256, loader.get_data, os.path.join

    def get_code(self: Any, name: str) -> Any:
        path = self.get_filename(name)
        if not path.startswith(workspace):
            return usual(self, name)
        watch(path)
        data = texts[path] if path in texts else read(self, path)
        try:
            code = marshal.loads(read(self, join(store, digest(data).hexdigest())))
        except FileNotFoundError:
            return self.source_to_code(data, path)
        rename(code, path)
        return code

    loader.get_code = get_code


def load(job: str) -> Callable[[pytest.Config], None]:
    """The module's `pytest_configure`."""
    Path(__file__).unlink()
    del os.environ["PYTEST_PLUGINS"]  # a pytest that a test starts has no such plugin
    read = json.loads(job)
    judge = Judge(read, Path(read["folder"]), os.dup(1))
    take_over_imports(read["workspace"], read["frozen"], read["bytecode"], judge.about_to_run)
    atexit.register(judge.leave)  # the first to register is the last to run

    def configure(config: pytest.Config) -> None:
        config.pluginmanager.register(judge)

    return configure
