"""What a clean package's own suite does: which tests pass every time, how long each takes, which lines each runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.audit import RUNS, Observation, observe, state_difference
from refork.envs.swe.package import Package
from refork.envs.swe.sandbox.base import Backend, Limits
from refork.envs.swe.testrun import TestCommand

SLOW_TEST_S = 0.2
"""A test that takes longer is in no mutation task."""
SURVEY_LIMITS = Limits(wall_s=300.0, cpu_s=240, output_bytes=16 << 20)


@dataclass(frozen=True)
class Survey:
    """`tests` pass every time and are fast. Times are seconds, the shortest seen."""

    tests: tuple[str, ...]
    durations: Mapping[str, float]
    trace: Mapping[str, Mapping[str, frozenset[int]]]
    """Lines by test and file."""
    uncached: str = ""
    """Why repeated runs do not leave the same state; empty when they do."""

    def covering(self, path: str, lines: Iterable[int]) -> tuple[str, ...]:
        """Tests that run one of `lines` of `path`, in suite order."""
        found: set[str] = set()
        for line in lines:
            found |= self._by_line.get((path, line), set())
        return tuple(test for test in self.tests if test in found)

    @cached_property
    def _by_line(self) -> Mapping[tuple[str, int], set[str]]:
        table: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for test in self.tests:
            for path, lines in self.trace.get(test, {}).items():
                for line in lines:
                    table[path, line].add(test)
        return table


def survey(backend: Backend, package: Package, python_env: Path) -> Survey:
    """Run the suite traced once and plain as often as an audit does: to the mutation tasks of a package this *is* the
    audit of the reference solution, which is the clean package. Raises InfraFailure when the suite does not run."""
    plain = [_run(backend, package, python_env, ()) for _ in range(RUNS)]
    traced = _run(backend, package, python_env, package.source_files).run
    runs = [observation.run for observation in plain]
    durations = {test: min(run.durations.get(test, 0.0) for run in runs) for test in runs[0].outcomes}
    tests = tuple(
        test
        for test, seconds in durations.items()
        if seconds <= SLOW_TEST_S and all(run.passed(test) for run in (*runs, traced))
    )
    if not tests:
        errors = " ".join(runs[0].collection_errors[:1])[-300:]
        raise InfraFailure(f"no test of {package.name} {package.version} passes every time; first error: {errors}")
    return Survey(tests, durations, traced.trace, state_difference(plain) or "")


def _run(backend: Backend, package: Package, python_env: Path, trace: tuple[str, ...]) -> Observation:
    command = TestCommand(
        tests=None,
        paths=package.layout.tests,
        python_path=package.layout.python_path,
        trace=trace,
        test_cpu_s=30.0,
        limits=SURVEY_LIMITS,
    )
    observed = observe(backend, package.spec(python_env), {}, command)
    if observed.run.report != "whole":
        tail = observed.run.command.output.strip()[-300:]
        raise InfraFailure(
            f"the suite of {package.name} {package.version} does not run: report {observed.run.report}: {tail}"
        )
    return observed
