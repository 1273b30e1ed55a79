"""The determinism audit: does a state, tested again, give the same outcomes and the same state afterwards?"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from refork.envs.swe.sandbox.base import WORKSPACE, Backend, SandboxSpec
from refork.envs.swe.testrun import TestCommand, TestOutcome, TestRun, run_tests

RUNS = 3
NONCE = hashlib.sha256(b"audit").hexdigest()
"""Markers of audit runs, the same each time, so that the states after two runs can be compared."""


@dataclass(frozen=True)
class Observation:
    """One run of the tests on a throw-away sandbox, and the id of the state they left."""

    run: TestRun
    state_id: str

    @property
    def outcomes(self) -> Mapping[str, TestOutcome]:
        return self.run.outcomes


def observe(
    backend: Backend, spec: SandboxSpec, files: Mapping[str, bytes | None], command: TestCommand
) -> Observation:
    """Run `command` in a fresh sandbox with `files` (workspace-relative) put into it. Raises InfraFailure."""
    with backend.open(spec) as sandbox:
        if files:
            sandbox.put({f"{WORKSPACE}/{path}": data for path, data in files.items()})
        run = run_tests(sandbox, replace(command, nonce=NONCE))
        return Observation(run, sandbox.state_id)


def repeat(
    backend: Backend,
    spec: SandboxSpec,
    files: Mapping[str, bytes | None],
    command: TestCommand,
    seen: Sequence[Observation] = (),
) -> list[Observation]:
    """`RUNS` observations of one state, those in `seen` among them."""
    return [*seen, *(observe(backend, spec, files, command) for _ in range(RUNS - len(seen)))]


def outcome_difference(observations: Sequence[Observation]) -> str | None:
    """Which test came out otherwise in a repeated run of one state; None when all agree."""
    first = observations[0]
    for number, other in enumerate(observations[1:], 2):
        for test in sorted({*first.outcomes, *other.outcomes}):
            before, after = (o.outcomes.get(test, "missing") for o in (first, other))
            if before != after:
                return f"{test}: {before} in run 1, {after} in run {number}"
    return None


def state_difference(observations: Sequence[Observation]) -> str | None:
    """Which run of one state left another state than the first; None when all left the same."""
    for number, other in enumerate(observations[1:], 2):
        if observations[0].state_id != other.state_id:
            return f"the state after run {number} differs from that after run 1"
    return None
