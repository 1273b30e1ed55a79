"""Runs tests on edited workspaces and reads spectra off them: in a sandbox, or from the cache."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from refork.envs.forkable import Edge, ExecutionCache, Spent, StateRef
from refork.envs.swe.localise import Line, Spectrum, Verdict
from refork.envs.swe.sandbox.base import Limits, Sandbox
from refork.envs.swe.testrun import PLUGIN, TestCommand, TestRun, run_tests

MEMO = 128
"""Spectra kept in memory."""
_PLUGIN_ID = hashlib.sha256(PLUGIN.read_bytes()).hexdigest()[:16]
LIMITS = Limits(wall_s=60.0, cpu_s=20, output_bytes=1 << 20)


@dataclass(frozen=True)
class Probe:
    """One run that was asked for: what it showed, what it took."""

    spectrum: Spectrum
    spent: Spent


class Prober:
    """Not thread-safe. `sandbox` gives the one sandbox it works in, asked for only when something must really run."""

    def __init__(
        self,
        sandbox: Callable[[], Sandbox],
        task: str,
        sources: tuple[str, ...],
        python_path: tuple[str, ...] = (),
        cache: ExecutionCache | None = None,
        test_cpu_s: float = 1.0,
    ) -> None:
        self.sandbox, self.task, self.cache = sandbox, task, cache
        self.command = TestCommand(
            (), python_path=python_path, trace=sources, texts=True, test_cpu_s=test_cpu_s, limits=LIMITS
        )
        self._base: tuple[Sandbox, StateRef] | None = None
        self._memo: OrderedDict[tuple[str, str], Spectrum] = OrderedDict()

    def at(self, files: Mapping[str, bytes | None]) -> Sandbox:
        """The sandbox, in its base with `files` put into it; what was in it before is gone."""
        sandbox = self.sandbox()
        if self._base is None or self._base[0] is not sandbox:
            self._base = sandbox, sandbox.snapshot()
        sandbox.restore(self._base[1])
        sandbox.put(files)
        return sandbox

    def run(
        self, workspace_id: str, files: Mapping[str, bytes | None], tests: tuple[str, ...], trace: bool = True
    ) -> Probe:
        """What `tests` show in the base with `files` put into it; no lines without `trace`. Raises InfraFailure."""
        command = replace(self.command, tests=tests, trace=self.command.trace if trace else ())
        action = _action(command)
        key = (workspace_id, action)
        if key in self._memo:
            self._memo.move_to_end(key)
            return Probe(self._memo[key], Spent(False, 0.0))
        edge = self.cache.lookup(self.task, workspace_id, action) if self.cache else None
        executed = edge is None
        if edge is None:
            edge = self._execute(workspace_id, files, command)
        spectrum = decode_spectrum(edge.observation)
        self._memo[key] = spectrum
        if len(self._memo) > MEMO:
            self._memo.popitem(last=False)
        return Probe(spectrum, Spent(executed, edge.cost_s))

    def _execute(self, workspace_id: str, files: Mapping[str, bytes | None], command: TestCommand) -> Edge:
        started = time.perf_counter()
        run = run_tests(self.at(files), command)
        shown = encode_spectrum(spectrum_of(run, command.tests or (), self.command.trace))
        edge = Edge(shown, time.perf_counter() - started, workspace_id)
        if self.cache and run.command.killed_by != "wall":  # wall time depends on what else the machine does
            self.cache.record(self.task, workspace_id, _action(command), edge)
        return edge


def _action(command: TestCommand) -> str:
    """Names a run in the cache: all that its result depends on besides the workspace."""
    parts = [command.tests, command.python_path, command.trace, command.test_cpu_s, _PLUGIN_ID]
    return "probe:" + hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def spectrum_of(run: TestRun, tests: tuple[str, ...], sources: tuple[str, ...]) -> Spectrum:
    """A test that did not run is `missing`, and so are all when the run ended without a report."""
    verdicts = {test: _verdict(run, test, frozenset(sources)) for test in tests}
    return Spectrum(verdicts, _lines(run.imported))


def _verdict(run: TestRun, test: str, sources: frozenset[str]) -> Verdict:
    outcome = run.outcomes.get(test)
    if outcome is None:
        return Verdict("missing")
    lines = _lines(run.trace.get(test, {}))
    if outcome in ("passed", "skipped"):
        return Verdict("passed" if outcome == "passed" else "skipped", lines=lines)
    failure = run.failures.get(test)
    if failure is None:
        return Verdict("failed", lines=lines)
    return Verdict("failed", failure.exception, tuple(f for f in failure.frames if f[0] in sources), lines)


def _lines(files: Mapping[str, frozenset[int]]) -> frozenset[Line]:
    """Without line 0, where the tracer sees a module begin."""
    return frozenset((path, number) for path, numbers in files.items() for number in numbers if number > 0)


def encode_spectrum(spectrum: Spectrum) -> bytes:
    """Compressed JSON; equal spectra give equal bytes."""
    tests = {
        test: [v.result, v.error, [list(f) for f in v.frames], _by_file(v.lines)]
        for test, v in sorted(spectrum.verdicts.items())
    }
    text = json.dumps({"tests": tests, "imported": _by_file(spectrum.imported)}, separators=(",", ":"))
    return zlib.compress(text.encode(), 6)


def decode_spectrum(data: bytes) -> Spectrum:
    """The inverse of `encode_spectrum`."""
    body: dict[str, Any] = json.loads(zlib.decompress(data))
    verdicts = {
        test: Verdict(result, error, tuple((path, line) for path, line in frames), _from_files(lines))
        for test, (result, error, frames, lines) in body["tests"].items()
    }
    return Spectrum(verdicts, _from_files(body["imported"]))


def _by_file(lines: frozenset[Line]) -> dict[str, list[int]]:
    files: dict[str, list[int]] = {}
    for path, number in sorted(lines):
        files.setdefault(path, []).append(number)
    return files


def _from_files(files: Mapping[str, list[int]]) -> frozenset[Line]:
    return frozenset(_line(path, number) for path, numbers in files.items() for number in numbers)


@lru_cache(maxsize=1 << 16)
def _line(path: str, number: int) -> Line:
    """One object per line, however many tests run it."""
    return path, number
