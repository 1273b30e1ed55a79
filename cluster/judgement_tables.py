"""Judgements of tasks as a report: JSON, tables, what was not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.cluster.judgement import Judgement
from rich.table import Table

PACKAGES_A_TABLE = 5


@dataclass(frozen=True)
class TaskReport:
    """One judgement a policy and mode."""

    judgements: Sequence[Judgement]
    pass_k: tuple[int, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [j.to_json() for j in self.judgements]

    def summary(self) -> list[str]:
        """None: the table is short."""
        return []

    def tables(self) -> list[Table]:
        names = (*(f"pass@{k}" for k in self.pass_k), "tasks", "attempts", "unjudged")
        table = Table("policy", "mode", "resolved [95 %]", *names)
        for j in self.judgements:
            passed = [f"{j.pass_at[k]:.3f}" if k in j.pass_at else "-" for k in self.pass_k]
            counts = (str(j.tasks), str(j.attempts), str(len(j.unjudged)))
            table.add_row(j.policy, j.mode, str(j.resolved or "-"), *passed, *counts)
        return [table, *self._by_package()]

    def about(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def plots(self, folder: Path) -> list[Path]:
        """None."""
        return []

    def notes(self) -> list[str]:
        return [
            f"not judged: {j.policy} {j.mode} {u.task} attempt {u.attempt}: {u.reason}"
            for j in self.judgements
            for u in j.unjudged
        ]

    def _by_package(self) -> list[Table]:
        """Resolved shares per package, a few packages a table so that it fits."""
        packages = sorted({name for j in self.judgements for name in j.by_package})
        tables = []
        for start in range(0, len(packages), PACKAGES_A_TABLE):
            some = packages[start : start + PACKAGES_A_TABLE]
            tables.append(Table("by package", "mode", *some))
            for j in self.judgements:
                tables[-1].add_row(j.policy, j.mode, *(str(j.by_package.get(name, "-")) for name in some))
        return tables
