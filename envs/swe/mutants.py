"""Mutants of a package: single bugs tried one by one, and pairs and triples of those that a test notices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from refork.envs.swe.audit import Observation, observe
from refork.envs.swe.mutate import Mutation, function_spans, mutations
from refork.envs.swe.package import Package
from refork.envs.swe.sandbox.base import Backend, SandboxSpec
from refork.envs.swe.source_edit import apply, parses
from refork.envs.swe.survey import Survey
from refork.envs.swe.testrun import TestCommand

NEAR = 100
"""At most this many tests that run a mutated line."""
AROUND = 40
"""At most this many further tests of the same files, those that run the mutated functions first."""
MAX_FAILING = 60
Fate = Literal["killed", "survived", "timeout", "broken", "uncovered"]


@dataclass(frozen=True)
class Mutant:
    """Bugs that tests notice together. `command` runs the task's tests; `observed` is what it showed."""

    bugs: tuple[Mutation, ...]
    files: Mapping[str, bytes]
    """Broken text of each changed file."""
    command: TestCommand
    observed: Observation

    @property
    def failing(self) -> tuple[str, ...]:
        return tuple(t for t, outcome in self.observed.outcomes.items() if outcome == "failed")

    @property
    def passing(self) -> tuple[str, ...]:
        return tuple(t for t, outcome in self.observed.outcomes.items() if outcome == "passed")


@dataclass
class Lab:
    """Tries mutations of one package in sandboxes, and counts what became of them by operator."""

    backend: Backend
    package: Package
    survey: Survey
    python_env: Path
    fates: Counter[tuple[str, Fate]] = field(default_factory=Counter)
    runs: int = 0

    @cached_property
    def texts(self) -> dict[str, str]:
        return {path: self.package.text(path) for path in self.package.source_files}

    @cached_property
    def spans(self) -> dict[str, dict[str, tuple[int, int]]]:
        return {path: function_spans(text) for path, text in self.texts.items()}

    @cached_property
    def spec(self) -> SandboxSpec:
        return self.package.spec(self.python_env)

    def candidates(self, operators: Sequence[str], seed: int) -> Iterator[Mutation]:
        """All mutations of the package in a random order that takes the operators in turn."""
        rng = random.Random(f"{self.package.name} {self.package.version} {seed}")
        found = [m for path, text in self.texts.items() for m in mutations(path, text, operators)]
        queues = {name: [m for m in found if m.operator == name] for name in operators}
        for queue in queues.values():
            rng.shuffle(queue)
        while any(queues.values()):
            for name in operators:
                if queues[name]:
                    yield queues[name].pop()

    def single(self, bug: Mutation) -> Mutant | None:
        """The mutant with this one bug, if a test notices it and the suite still runs; its fate is counted."""
        fate, mutant = self._try((bug,))
        self.fates[bug.operator, fate] += 1
        return mutant

    def several(self, bugs: tuple[Mutation, ...]) -> Mutant | None:
        """The mutant with all `bugs`, if each matters: repairing any one changes the set of failing tests."""
        _, mutant = self._try(bugs)
        if mutant is None:
            return None
        for left_out in bugs:
            rest = tuple(bug for bug in bugs if bug is not left_out)
            repaired = self._observe(self.broken(rest), mutant.command)
            failing = {t for t, outcome in repaired.outcomes.items() if outcome == "failed"}
            if repaired.run.report != "whole" or failing == set(mutant.failing):
                return None
        return mutant

    def broken(self, bugs: Sequence[Mutation]) -> dict[str, bytes]:
        """Broken text of each file that `bugs` change."""
        paths = sorted({bug.edit.path for bug in bugs})
        return {
            path: apply(self.texts[path], *(bug.edit for bug in bugs if bug.edit.path == path)).encode()
            for path in paths
        }

    def tests(self, bugs: Sequence[Mutation]) -> tuple[str, ...]:
        """Tests that run a mutated line, and some around them, in suite order; empty when no test runs one."""
        near = self._union([self.survey.covering(b.edit.path, _lines(b)) for b in bugs])
        functions = self._union([self.survey.covering(b.edit.path, self._function(b)) for b in bugs])
        files = {test.partition("::")[0] for test in near}
        around = [t for t in functions if t not in set(near)]
        around += [t for t in self.survey.tests if t.partition("::")[0] in files and t not in {*near, *around}]
        chosen = {*spread(near, NEAR), *around[:AROUND]}
        return tuple(test for test in self.survey.tests if test in chosen) if near else ()

    def _function(self, bug: Mutation) -> range:
        first, last = self.spans[bug.edit.path].get(bug.function, (0, 0))
        return range(first + 1, last + 1)  # the first line is run by defining the function

    def _union(self, lists: Sequence[Sequence[str]]) -> list[str]:
        found = {test for tests in lists for test in tests}
        return [test for test in self.survey.tests if test in found]

    def _try(self, bugs: tuple[Mutation, ...]) -> tuple[Fate, Mutant | None]:
        tests, files = self.tests(bugs), self.broken(bugs)
        if not tests:
            return "uncovered", None
        if not all(parses(text.decode()) for text in files.values()):
            return "broken", None
        command = TestCommand(tests, python_path=self.package.layout.python_path, texts=True)
        observed = self._observe(files, command)
        fate = _fate(observed)
        return fate, Mutant(bugs, files, command, observed) if fate == "killed" else None

    def _observe(self, files: Mapping[str, bytes], command: TestCommand) -> Observation:
        self.runs += 1
        return observe(self.backend, self.spec, files, command)

    def again(self, mutant: Mutant) -> Observation:
        return self._observe(mutant.files, mutant.command)

    def clean(self, mutant: Mutant) -> Observation:
        """The same tests on the clean package, its files put in place of the broken ones."""
        return self._observe({path: self.texts[path].encode() for path in mutant.files}, mutant.command)


def _lines(bug: Mutation) -> range:
    return range(bug.edit.start_line, bug.edit.end_line + 1)


def spread(tests: Sequence[str], most: int) -> list[str]:
    """At most `most` of `tests`, evenly spread."""
    if len(tests) <= most:
        return list(tests)
    return [tests[i * len(tests) // most] for i in range(most)]


def _fate(observed: Observation) -> Fate:
    outcomes = list(observed.outcomes.values())
    if observed.run.command.killed_by is not None or "timeout" in outcomes:
        return "timeout"
    if observed.run.report != "whole" or observed.run.collection_errors or "passed" not in outcomes:
        return "broken"
    failing = outcomes.count("failed")
    if failing > MAX_FAILING:
        return "broken"
    return "killed" if failing else "survived"
