"""`refork train`: reads the job, shows it, or runs it. Importing this imports neither torch nor ray."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import ValidationError
from refork.cluster.checkpoint_folder import committed
from refork.cluster.resources import check_room
from refork.cluster.retention import check_retention
from refork.cluster.run_folder import RunFolder, create, saved_job
from refork.cluster.storage import Storage, open_storage
from refork.cluster.storage_writer import is_claimed, writing
from refork.cluster.toml import dumps
from refork.cluster.wandb_sink import check_key
from refork.envs.forkable import BadInput, InfraFailure
from refork.scripts.job import read_job
from refork.scripts.stored import fetched, is_url, stored_job, stored_overrides, to_resume
from refork.trainers.config import JobConfig

PLACING = ("rollout.actors", "rollout.cpus", "rollout.resources", "cluster")
FREE_ON_RESUME = ("runs", "storage", *PLACING, "evaluate", "tracking", "checkpoint", "trainer.updates")
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
        A TOML file, the name of a shipped recipe, or, with --resume, the folder of a run or its URL in a storage.
    overrides
        Keys of the job laid over it: --section.key value. Any wrong key names the nearest right one.
    dry_run
        Read and check the job, print it as resolved, and stop.
    resume
        Go on from the newest committed checkpoint of the newest run of that name (or of the folder or URL given).
    """
    folder = Path(job) if resume and Path(job).is_dir() else None
    if is_url(job):
        if not resume:
            raise BadInput(f"{job}: is the URL of a run; add --resume to go on with it")
        overrides = stored_overrides(job, overrides)
        config = stored_job(job, overrides, _check_resumable)
    else:
        config = read_job(str(folder / "job.toml" if folder else job), overrides)
    if dry_run:
        print(dumps(config.model_dump(mode="json")), end="")
        return 0
    check_retention(config)
    check_key(config.tracking.wandb)
    storage = open_storage(config.storage) if config.storage else None
    if resume:
        path = fetched(job, config.runs) if is_url(job) else to_resume(config, folder)
        _check_resumable(config, saved_job(path), str(path))
        return _run(config, lambda: RunFolder(path), storage, overrides)
    return _run(config, lambda: create(config, lambda name: storage is not None and is_claimed(storage, name)), storage)


def _run(
    config: JobConfig,
    open_folder: Callable[[], RunFolder],
    storage: Storage | None,
    resumed_with: Sequence[str] | None = None,
) -> int:
    check_room(config)

    from refork.cluster.reaper import sweep
    from refork.cluster.tracking_origin import origin
    from refork.scripts.progress import Progress

    sweep()
    parts = importlib.import_module(RUNNERS[config.trainer.runs_in]).prepare(config)
    folder = open_folder()
    origin(folder.path)
    print(f"run folder: {folder.path}", file=sys.stderr)
    try:
        display, resume = Progress(config.trainer.updates, parts.family.headline), resumed_with is not None
        with writing(storage, folder.path):
            totals = _run_in(folder, config, parts, display, resume)
    except (KeyboardInterrupt, InfraFailure):
        _say_how_to_go_on(folder, storage, resumed_with or ())
        raise
    episodes = f"{totals['trajectories']:.0f} episodes, " if totals["trajectories"] else ""  # none in a log
    print(f"done: {episodes}{totals['steps']:.0f} steps; {folder.path}")
    return 0


def _say_how_to_go_on(folder: RunFolder, storage: Storage | None, resumed_with: Sequence[str]) -> None:
    """With the overrides of a resumed run, which are not in its job file."""
    if not committed(folder.checkpoints):
        print("nothing was committed yet: start it again", file=sys.stderr)
        return
    if storage:
        print(f"on another machine: refork train {storage.below(folder.path.name).url} --resume", file=sys.stderr)
    again = shlex.join(["refork", "train", str(folder.path), "--resume", *resumed_with])
    print(f"to go on: {again}", file=sys.stderr)


def _run_in(folder: RunFolder, config: JobConfig, parts: Any, display: Any, resume: bool) -> dict[str, float]:
    """By this process, or by learners; the totals."""
    if config.cluster.learners == 1 or config.trainer.runs_in == "rllib":
        totals: dict[str, float] = importlib.import_module(RUNNERS[config.trainer.runs_in]).train(
            parts, folder, display, resume
        )
        return totals
    from refork.cluster.learners import train_on_learners

    parts.family.close()  # each learner opens its own
    with folder:
        return train_on_learners(config, folder, display, resume)


def _check_resumable(config: JobConfig, saved: dict[str, Any], path: str) -> None:
    """A resumed run equals one that never stopped only when what it computes is the same. Raises BadInput."""
    was, now = _flat(_completed(saved)), _flat(config.model_dump(mode="json", exclude_none=True))
    for key in sorted(was.keys() | now.keys()):
        free = any(key == name or key.startswith(f"{name}.") for name in FREE_ON_RESUME)
        if not free and was.get(key) != now.get(key):
            raise BadInput(
                f"{key}: the run in {path} has {was.get(key)!r}, this job {now.get(key)!r}; "
                "a resumed run must keep it: restore the value or start a new run"
            )


def _completed(saved: dict[str, Any]) -> dict[str, Any]:
    """With what keys that are newer than the run stand for: their defaults do what was done without them."""
    try:
        return JobConfig.model_validate(saved).model_dump(mode="json", exclude_none=True)
    except ValidationError:  # a key that is gone: named as one that differs
        return saved


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
