"""What a bug report would say: what was expected, from the failing tests; never where the bug is."""

from __future__ import annotations

from collections.abc import Sequence

from refork.envs.swe.package import Package
from refork.envs.swe.testrun import TestRun

LISTED = 5
"""At most this many failing tests are described."""


def problem_statement(package: Package, judge: Package, run: TestRun, failing: Sequence[str]) -> str:
    """Names of failing tests, the lines of theirs that failed, and what was raised there. `judge` brings the tests."""
    of = f" of version {judge.version}" if judge.version != package.version else ""
    count = f"{len(failing)} tests{of} fail" if len(failing) > 1 else f"A test{of} fails"
    parts = [f"{count} with {package.name} {package.version}."]
    parts += [_one(run, test) for test in failing[:LISTED]]
    if len(failing) > LISTED:
        parts.append(f"So do {len(failing) - LISTED} more.")
    return "\n\n".join(parts)


def _one(run: TestRun, test: str) -> str:
    failure = run.failures.get(test)
    if failure is None:
        return f"`{test}` fails."
    text = f"`{test}` fails with {failure.exception}"
    if failure.message.strip():
        text += f": {failure.message.strip().splitlines()[0]}"
    return f"{text}\n\n    {failure.line}" if failure.line else text
