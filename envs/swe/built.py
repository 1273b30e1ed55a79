"""Tasks as the builder makes them, and how they are written into a package's part of the task set."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refork.envs.swe.package import Package
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.tasks import Kind, Split, SWETask
from refork.envs.swe.workspace import derive


@dataclass(frozen=True)
class Quarantined:
    """A task that failed the audit, and why. It is listed and not used."""

    instance_id: str
    reason: str


@dataclass(frozen=True)
class Built:
    """A validated task. `base` and `solution` hold workspace-relative files; None: not there."""

    instance_id: str
    package: Package
    """The workspace that `base` changes."""
    judge: Package
    """The workspace whose tests judge; for a mutation the same."""
    kind: Kind
    base: Mapping[str, bytes | None]
    solution: Mapping[str, bytes | None]
    """What of the base the reference solution replaces."""
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    bugs: int = 0
    uncached: str = ""
    """Why the task may not be cached; empty when it may."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    secret: Mapping[str, Any] = field(default_factory=dict)
    """What belongs to the solution's row only."""


@dataclass(frozen=True)
class Part:
    """One package's part of a task set while it is written: `folder` now, `name` in the finished set."""

    folder: Path
    name: str

    def write(self, built: Built, split: Split) -> tuple[SWETask, dict[str, Any]]:
        """Write the task's folders; its row and the row of its solution."""
        base = self.folder / "bases" / built.instance_id
        derive(built.package.folder, base, built.base)
        derive(built.package.folder, self.folder / "solutions" / built.instance_id, built.solution, ())
        row = {
            "instance_id": built.instance_id,
            "folder": f"{self.name}/solutions/{built.instance_id}",
            "removed": sorted(path for path, data in built.solution.items() if data is None),
            "patch": patch(base, built.solution),
            **built.secret,
        }
        return self._task(built, split, digest_tree(base)), row

    def _task(self, built: Built, split: Split, base_id: str) -> SWETask:
        package = built.package
        return SWETask(
            instance_id=built.instance_id,
            package=package.name,
            version=package.version,
            kind=built.kind,
            base=f"{self.name}/bases/{built.instance_id}",
            base_id=base_id,
            problem_statement=built.problem_statement,
            fail_to_pass=built.fail_to_pass,
            pass_to_pass=built.pass_to_pass,
            test_files=built.judge.test_files,
            tests=f"{self.name}/tests/{built.judge.version}",
            source_files=package.source_files,
            test_roots=built.judge.layout.tests,
            python_path=package.layout.python_path,
            split=split,
            bugs=built.bugs,
            deterministic=not built.uncached,
            metadata={**built.metadata, **({"uncached": built.uncached} if built.uncached else {})},
        )

    def write_tests(self, judge: Package) -> None:
        """The test files of one release, once."""
        folder = self.folder / "tests" / judge.version
        if not folder.exists():
            derive(judge.folder, folder, {}, judge.test_files)


def patch(base: Path, solution: Mapping[str, bytes | None]) -> str:
    """Unified diff from the base to the solution."""
    return "".join(_diff(base / path, path, data) for path, data in sorted(solution.items()))


def _diff(file: Path, path: str, data: bytes | None) -> str:
    old = file.read_bytes() if file.is_file() else None
    rows = difflib.unified_diff(_lines(old), _lines(data), _name("a", path, old), _name("b", path, data))
    return "".join(row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows)


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)


def _name(side: str, path: str, data: bytes | None) -> str:
    return "/dev/null" if data is None else f"{side}/{path}"
