"""What is in a task set, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from refork.envs.swe.task_rows import read_rows
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import QUARANTINE, TaskSet
from rich.table import Table

COLUMNS = ("1 bug", "2 bugs", "3 bugs", "pair", "row")


def column(task: SWETask) -> str:
    """The column of `COLUMNS` that counts a task."""
    if task.kind == "mutation":
        return "1 bug" if task.bugs == 1 else f"{task.bugs} bugs"
    return "pair" if task.kind == "release_pair" else "row"


def table(tasks: Sequence[SWETask]) -> Table:
    """One row per package, and the sums."""
    shown = Table(title=f"{len(tasks)} tasks", show_footer=True)
    counts: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        for name in (column(task), "all", *(["steady"] if task.deterministic else [])):
            counts[task.package, name] += 1
            counts["", name] += 1
    packages = sorted({(task.split, task.package) for task in tasks})
    shown.add_column("package", "all")
    shown.add_column("split")
    for name in (*COLUMNS, "all", "steady"):
        shown.add_column(name, str(counts["", name]), justify="right")
    for split, package in packages:
        shown.add_row(package, split, *(str(counts[package, name]) for name in (*COLUMNS, "all", "steady")))
    return shown


def quarantined(tasks: TaskSet) -> list[dict[str, Any]]:
    """Tasks that failed the audit when the set was built, with the reason."""
    path = tasks.folder / QUARANTINE
    return [row for _, row in read_rows(path)] if path.exists() else []
