"""What is in a task set, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from refork.envs.swe.task_rows import read_rows
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import QUARANTINE, TaskSet
from rich.table import Table

FATES = ("killed", "survived", "timeout", "broken", "uncovered")
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
    shown.add_column("package", "all", no_wrap=True)
    shown.add_column("split", no_wrap=True)
    columns = [name for name in (*COLUMNS, "all", "steady") if counts["", name] or name == "steady"]
    for name in columns:
        shown.add_column(name, str(counts["", name]), justify="right")
    for split, package in packages:
        shown.add_row(package, split, *(str(counts[package, name]) for name in columns))
    return shown


def fates_table(reports: Mapping[str, Mapping[str, Any]]) -> Table:
    """What became of the single mutations tried, by operator; the reports are those of `builder.reports`."""
    counts: Counter[tuple[str, str]] = Counter()
    for report in reports.values():
        for key, count in report["fates"].items():
            operator, _, fate = key.partition(" ")
            counts[operator, fate] += count
    shown = Table(title="mutations tried, by operator")
    for name in ("operator", *FATES, "survived of run"):
        shown.add_column(name, justify="left" if name == "operator" else "right")
    for operator in sorted({operator for operator, _ in counts}):
        tried = sum(counts[operator, fate] for fate in FATES if fate != "uncovered")
        share = f"{counts[operator, 'survived'] / tried:.0%}" if tried else "-"
        shown.add_row(operator, *(str(counts[operator, fate]) for fate in FATES), share)
    return shown


def quarantined(tasks: TaskSet) -> list[dict[str, Any]]:
    """Tasks that failed the audit when the set was built, with the reason."""
    path = tasks.folder / QUARANTINE
    return [row for _, row in read_rows(path)] if path.exists() else []
