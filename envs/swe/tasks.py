"""The software-engineering task: one row, whatever data set or builder it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["mutation", "release_pair", "dataset"]
Split = Literal["train", "validation", "held_out"]


@dataclass(frozen=True)
class SWETask:
    """One task. Reward 1 iff every `fail_to_pass` and every `pass_to_pass` test passes after the agent is done."""

    instance_id: str
    """Unique, e.g. 'toolz-0.12.1-m2-0013'."""
    package: str
    """Held-out splits are by this."""
    version: str
    kind: Kind
    base: str
    """Folder of the broken workspace, relative to the task set's folder; without the grading tests of release pairs."""
    base_id: str
    """`digest_tree` of that folder."""
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    """pytest node ids relative to the workspace."""
    pass_to_pass: tuple[str, ...]
    test_files: tuple[str, ...]
    """Workspace-relative paths of the task's own tests and their support files; laid over before grading."""
    tests: str
    """Folder with the content of `test_files`, relative to the task set's folder; never mounted in the sandbox."""
    source_files: tuple[str, ...]
    """Workspace-relative files an agent may repair (the package's own modules)."""
    test_roots: tuple[str, ...] = ()
    """Workspace-relative folders and files that hold nothing but tests; grading makes them what `test_files` say."""
    python_path: tuple[str, ...] = ()
    """Workspace-relative folders on sys.path."""
    split: Split = "train"
    """Side of the split by package."""
    bugs: int = 0
    """How many bugs were injected (mutation tasks), else 0."""
    deterministic: bool = False
    """Passed the determinism audit, so that its edges may be cached."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Seed of a mutation, versions of a pair. Never the solution: that lies in the builder's own file."""

    @property
    def tests_run(self) -> tuple[str, ...]:
        """All tests that grading runs."""
        return (*self.fail_to_pass, *self.pass_to_pass)
