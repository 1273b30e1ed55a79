"""`refork evaluate`: judges a checkpoint and what it has to beat on tasks it was not trained on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refork.cluster.checkpoint_folder import find
from refork.envs.forkable import BadInput
from refork.envs.home import check_writable
from refork.envs.swe.tasks import Split
from refork.trainers.config import JobConfig
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.judgement import Judgement


PACKAGES_A_TABLE = 5


def evaluate(
    checkpoint: Path,
    /,
    *,
    split: Split = "held_out",
    attempts: int | None = None,
    tasks: int | None = None,
    baselines: bool = True,
    actors: int | None = None,
    out: Path | None = None,
) -> int:
    """Judge a checkpoint: resolved share, sampled and greedy, with 95 % bootstrap intervals over tasks, and pass@k.

    The untrained policy and the environment's baselines are judged beside it. Attempts that the machinery failed
    are listed at the end and count neither way.

    Parameters
    ----------
    checkpoint
        A checkpoint's folder, or a run's: its newest committed one.
    split
        train, validation or held_out.
    attempts
        Sampled episodes per task; default: as the run's job says.
    tasks
        Tasks to play, evenly over packages; 0: all; default: as the run's job says.
    baselines
        Judge the untrained policy and the environment's baselines too.
    actors
        Rollout actors; 0: in this process; default: as the run's job says.
    out
        File for the results as JSON; default: evaluation-SPLIT.json in the checkpoint's run.
    """
    path = find(checkpoint)

    from refork.cluster.checkpoint import read
    from refork.cluster.evaluating import evaluate_checkpoint

    loaded = read(path)
    job = _adjusted(JobConfig.model_validate(loaded.meta["job"]), attempts, tasks, actors)
    target = out or path.parent.parent / f"evaluation-{split}.json"
    if not target.parent.is_dir():
        raise BadInput(f"--out {target}: there is no folder {target.parent}")
    check_writable(target.parent, "choose another --out")
    judgements = evaluate_checkpoint(loaded, job, split, baselines, _say)
    _write(target, {"checkpoint": str(path), "step": loaded.step, "split": split}, judgements)
    _show(judgements, job.evaluate.pass_k)
    print(f"written to {target}")
    return 0


def _adjusted(job: JobConfig, attempts: int | None, tasks: int | None, actors: int | None) -> JobConfig:
    """The job with what was given on the command line, checked as a job is."""
    given = {
        ("evaluate", "attempts"): attempts,
        ("evaluate", "tasks"): tasks,
        ("rollout", "actors"): actors,
    }
    data = job.model_dump()
    for (section, key), value in given.items():
        if value is not None:
            if value < (1 if key == "attempts" else 0):
                raise BadInput(f"--{key}: must be at least {1 if key == 'attempts' else 0}, got {value}")
            data[section][key] = value
    return JobConfig.model_validate(data)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(path: Path, head: dict[str, Any], judgements: list[Judgement]) -> None:
    try:
        path.write_text(json.dumps({**head, "results": [j.to_json() for j in judgements]}, indent=1) + "\n")
    except OSError as error:
        raise BadInput(f"--out {path}: cannot be written: {error.strerror}") from error


def _show(judgements: list[Judgement], pass_k: tuple[int, ...]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("policy", "mode", "resolved [95 %]", *(f"pass@{k}" for k in pass_k), "tasks", "attempts", "unjudged")
    for j in judgements:
        passed = [f"{j.pass_at[k]:.3f}" if k in j.pass_at else "-" for k in pass_k]
        counts = (str(j.tasks), str(j.attempts), str(len(j.unjudged)))
        table.add_row(j.policy, j.mode, str(j.resolved or "-"), *passed, *counts)
    console.print(table)
    for table in _by_package(judgements):
        console.print(table)
    for j in judgements:
        for u in j.unjudged:
            console.print(f"not judged: {j.policy} {j.mode} {u.task} attempt {u.attempt}: {u.reason}", highlight=False)


def _by_package(judgements: list[Judgement]) -> list[Table]:
    """Resolved shares per package, a few packages a table so that it fits."""
    packages = sorted({name for j in judgements for name in j.by_package})
    tables = []
    for start in range(0, len(packages), PACKAGES_A_TABLE):
        some = packages[start : start + PACKAGES_A_TABLE]
        tables.append(Table("by package", "mode", *some))
        for j in judgements:
            tables[-1].add_row(j.policy, j.mode, *(str(j.by_package.get(name, "-")) for name in some))
    return tables
