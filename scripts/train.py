"""`refork train`: reads the job, shows it, or runs it. Importing this imports neither torch nor ray."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from refork.cluster.resources import check_room
from refork.cluster.run_folder import RunFolder, create, newest_run, saved_job
from refork.cluster.toml import dumps
from refork.envs.forkable import BadInput, InfraFailure
from refork.scripts.job import read_job
from refork.trainers.config import JobConfig

PLACING = ("rollout.actors", "rollout.cpus", "rollout.resources", "cluster")
FREE_ON_RESUME = ("runs", *PLACING, "evaluate", "tracking", "checkpoint", "trainer.updates")
"""Keys that a resumed run may change; any other would make it another run."""
RUNNERS = {"loop": "refork.cluster.training", "rllib": "refork.cluster.rllib_run"}
"""Modules that prepare and run a job."""


def train(
    job: str,
    /,
    *overrides: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)],
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    resume: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Train as a job file says, into a new folder below `runs`.

    Parameters
    ----------
    job
        A TOML file, the name of a shipped recipe, or, with --resume, the folder of a run.
    overrides
        Keys of the job laid over it: --section.key value. Any wrong key names the nearest right one.
    dry_run
        Read and check the job, print it as resolved, and stop.
    resume
        Go on from the newest committed checkpoint of the newest run of that name (or of the folder given).
    """
    folder = Path(job) if resume and Path(job).is_dir() else None
    config = read_job(str(folder / "job.toml" if folder else job), overrides)
    if dry_run:
        print(dumps(config.model_dump(mode="json")), end="")
        return 0
    if resume:
        path = folder or newest_run(config.runs, config.name)
        _check_resumable(config, saved_job(path), path)
        return _run(config, lambda: RunFolder(path), overrides)
    return _run(config, lambda: create(config))


def _run(config: JobConfig, open_folder: Callable[[], RunFolder], resumed_with: Sequence[str] | None = None) -> int:
    check_room(config)

    from refork.cluster.reaper import sweep
    from refork.cluster.tracking_origin import origin
    from refork.scripts.progress import Progress

    sweep()
    runner = importlib.import_module(RUNNERS[config.trainer.runs_in])
    parts = runner.prepare(config)
    folder = open_folder()
    origin(folder.path)
    print(f"run folder: {folder.path}", file=sys.stderr)
    try:
        display, resume = Progress(config.trainer.updates, parts.family.headline), resumed_with is not None
        if config.cluster.learners == 1 or config.trainer.runs_in == "rllib":
            totals = runner.train(parts, folder, display, resume)
        else:
            from refork.cluster.learners import train_on_learners

            parts.family.close()  # each learner opens its own
            with folder:
                totals = train_on_learners(config, folder, display, resume)
    except (KeyboardInterrupt, InfraFailure):
        again = shlex.join(["refork", "train", str(folder.path), "--resume", *(resumed_with or ())])
        print(f"to go on: {again}", file=sys.stderr)  # a resumed run's own overrides are not in its job file
        raise
    episodes = f"{totals['trajectories']:.0f} episodes, " if totals["trajectories"] else ""  # none in a log
    print(f"done: {episodes}{totals['steps']:.0f} steps; {folder.path}")
    return 0


def _check_resumable(config: JobConfig, saved: dict[str, Any], path: Path) -> None:
    """A resumed run equals one that never stopped only when what it computes is the same. Raises BadInput."""
    was, now = _flat(saved), _flat(config.model_dump(mode="json", exclude_none=True))
    for key in sorted(was.keys() | now.keys()):
        free = any(key == name or key.startswith(f"{name}.") for name in FREE_ON_RESUME)
        if not free and was.get(key) != now.get(key):
            raise BadInput(
                f"{key}: the run in {path} has {was.get(key)!r}, this job {now.get(key)!r}; "
                "a resumed run must keep it: restore the value or start a new run"
            )


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
