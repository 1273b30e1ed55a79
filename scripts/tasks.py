"""`refork tasks build|check|list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators


def build(
    *,
    out: Path | None = None,
    packages: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    jobs: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 2,
) -> int:
    """Make the task set from the recipes: download, break, validate, audit.

    Building again does nothing when all is there; an interrupted build goes on where it was.

    Parameters
    ----------
    out
        Folder of the task set; left out: the one that training uses by default.
    packages
        Packages to build; left out: all that have a recipe.
    jobs
        Packages built at once.
    """
    from refork.envs.home import check_home, check_writable
    from refork.envs.swe.builder import build_taskset
    from refork.envs.swe.taskset import default_folder

    folder = (out or default_folder()).absolute()
    check_home()
    check_writable(folder, "choose another --out")
    report = build_taskset(folder, tuple(packages or ()), jobs)
    print(f"{report.tasks} tasks in {folder} ({report.seconds:.1f} s)")
    return 1 if report.failures and report.tasks == 0 else 0


def check(
    folder: Path | None = None,
    *,
    sample: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    seed: int = 0,
) -> int:
    """Audit tasks again: reference solution and empty change, three runs each, and the grade of both.

    Exit code 1 when a task fails.

    Parameters
    ----------
    folder
        The task set; left out: the one that training uses by default.
    sample
        How many tasks, drawn at random; 0: all.
    seed
        Of the draw.
    """
    from refork.envs.swe.recheck import check_taskset
    from refork.envs.swe.sandbox.overlay import OverlayBackend
    from refork.envs.swe.taskset import TaskSet

    tasks = TaskSet.open(folder)
    backend = OverlayBackend()
    try:
        findings = check_taskset(backend, tasks, sample, seed)
    finally:
        backend.close()
    failed = [finding for finding in findings if finding.reason]
    for finding in failed:
        print(f"{finding.instance_id}: {finding.reason}")
    print(f"{len(findings) - len(failed)} of {len(findings)} tasks pass the audit")
    return 1 if failed else 0


def list_(folder: Path | None = None, *, ids: bool = False, mutations: bool = False) -> None:
    """Show what is in a task set, by package, kind and number of bugs.

    Parameters
    ----------
    folder
        The task set; left out: the one that training uses by default.
    ids
        Print the id of every task, a line each, and nothing else.
    mutations
        Show too what became of the mutations tried.
    """
    from refork.envs.swe.builder import reports
    from refork.envs.swe.listing import fates_table, quarantined, table
    from refork.envs.swe.taskset import TaskSet
    from rich.console import Console

    tasks = TaskSet.open(folder)
    if ids:
        print("\n".join(sorted(task.instance_id for task in tasks.tasks)))
        return
    console = Console()
    console.print(table(tasks.tasks))
    if mutations:
        console.print(fates_table(reports(tasks.folder)))
    for row in quarantined(tasks):
        console.print(
            f"quarantined: {row['instance_id']}: {row['reason']}", markup=False, highlight=False, soft_wrap=True
        )
