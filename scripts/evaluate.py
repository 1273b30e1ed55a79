"""`refork evaluate`: judges a checkpoint and what it has to beat on tasks it was not trained on."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from refork.cluster.checkpoint_folder import find
from refork.envs.forkable import BadInput
from refork.envs.home import check_writable
from refork.envs.swe.tasks import Split
from refork.scripts.stored import fetched, is_url
from refork.trainers.config import JobConfig
from rich.console import Console

if TYPE_CHECKING:
    from refork.cluster.family import Report


def evaluate(
    checkpoint: str,
    /,
    *,
    split: Split = "held_out",
    attempts: int | None = None,
    tasks: int | None = None,
    baselines: bool = True,
    sizes: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    forks: int = 0,
    actors: int | None = None,
    out: Path | None = None,
) -> int:
    """Judge a checkpoint, sampled and greedy, with 95 % bootstrap intervals over tasks.

    Tasks: resolved share and pass@k. Games: fraction of the bound by domain, coupling and size, regret, what failed.
    The untrained policy and the environment's baselines are judged beside it. Attempts that the machinery failed
    are listed at the end and count neither way.

    Logs: values estimated on the split's patients, intervals by bootstrap over patients, the spread of trained seeds
    apart: weighted importance sampling (WIS, per decision), fitted Q evaluation (tables, linear, trees, networks),
    weighted doubly robust, cluster weights (OffCEM). Beside them the observed return, behaviour cloning, never-treat,
    random, and in simulators the true value. What the log does not support is marked and not ranked. With effective
    sample sizes, calibration of who acted, rare and out-of-distribution recommendations, change of dose; pictures are
    written beside the JSON.

    Parameters
    ----------
    checkpoint
        A checkpoint's folder, or a run's: its newest committed one; or the URL of either in a storage.
    split
        train, validation or held_out.
    attempts
        Sampled episodes per task; default: as the run's job says.
    tasks
        Tasks to play, evenly over packages; 0: all; default: as the run's job says.
    baselines
        Judge the untrained policy (not of logs) and the environment's baselines too.
    sizes
        Games: numbers of sites to play at, e.g. 20 80; default: as the run's job says.
    forks
        Games: try that many joint moves at every round by going back, and take the best; 0: do not.
    actors
        Rollout actors; 0: in this process; default: as the run's job says.
    out
        File for the results as JSON; default: evaluation-SPLIT.json in the checkpoint's run.
    """
    path = find(fetched(checkpoint) if is_url(checkpoint) else Path(checkpoint))

    from refork.cluster.checkpoint import read
    from refork.cluster.evaluating import evaluate_checkpoint
    from refork.cluster.tracking import read_metrics

    loaded = read(path)
    job = _adjusted(JobConfig.model_validate(loaded.meta["job"]), attempts, tasks, actors)
    if sizes:
        job = _resized(job, "sizes" if split == "train" else "evaluate_sizes", sizes)
    if forks < 0 or forks == 1:
        raise BadInput(f"--forks: the policy's own move counts: 0, or at least 2, got {forks}")
    target = out or path.parent.parent / f"evaluation-{split}.json"
    if not target.parent.is_dir():
        raise BadInput(f"--out {target}: there is no folder {target.parent}")
    check_writable(target.parent, "choose another --out")
    history = [row for row in read_metrics(path.parent.parent / "metrics.jsonl") if row["step"] <= loaded.step]
    report = evaluate_checkpoint(loaded, job, split, baselines, _say, forks, history)
    _write(target, {"checkpoint": str(path), "step": loaded.step, "split": split, **report.about()}, report)
    _show(report)
    print(f"written to {target}")
    for written in report.plots(target.parent):
        print(f"written to {written}")
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


def _resized(job: JobConfig, key: str, sizes: list[int]) -> JobConfig:
    """The same games at other sizes: a policy of games plays any."""
    if job.trainer.learns_from != "games":
        raise BadInput(f"--sizes: is for games; {job.env.id} has tasks")
    options = {**job.env.options, key: sizes}
    return job.model_copy(update={"env": job.env.model_copy(update={"options": options})})


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(path: Path, head: dict[str, Any], report: Report) -> None:
    try:
        path.write_text(json.dumps({**head, "results": report.to_json()}, indent=1) + "\n")
    except OSError as error:
        raise BadInput(f"--out {path}: cannot be written: {error.strerror}") from error


def _show(report: Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    for line in report.summary():
        console.print(line, highlight=False, markup=False)
    for table in report.tables():
        console.print(table)
    for note in report.notes():
        console.print(note, highlight=False, markup=False)
