"""Runs in a storage, for the commands that take one: which is meant, its job, and a copy of it on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from refork.cluster.run_folder import newest_run, saved_job
from refork.envs.forkable import BadInput
from refork.scripts.job import read_job
from refork.trainers.config import JobConfig

Check = Callable[[JobConfig, dict[str, Any], str], None]
"""Raises BadInput where a job cannot go on with the run that was saved; the text says which run."""


def is_url(text: str) -> bool:
    return "://" in text


def stored_overrides(url: str, overrides: Sequence[str]) -> tuple[str, ...]:
    """With the storage that the run lies in, wherever it was when it was begun, unless another is given."""
    from refork.cluster.storage_fetch import stored_run

    run = stored_run(url)
    if run.checkpoint:
        raise BadInput(f"{url}: is a checkpoint; a run goes on from its newest: give {run.storage.url}")
    given = any(override.partition("=")[0] == "--storage" for override in overrides)
    return tuple(overrides) if given else (*overrides, "--storage", run.parent)


def stored_job(url: str, overrides: Sequence[str], check: Check) -> JobConfig:
    """The job of a run in a storage with `overrides` laid over, checked against what was saved. Raises BadInput."""
    from refork.cluster.storage_fetch import stored_run

    run = stored_run(url)
    with tempfile.TemporaryDirectory() as scratch:
        path = run.job(Path(scratch))
        config = read_job(str(path), overrides)
        check(config, saved_job(path.parent), url)
    return config


def fetched(url: str, runs: Path | None = None) -> Path:
    """The run below `runs` (None: where its job says), or the checkpoint in it that the URL names. Raises BadInput."""
    from refork.cluster.storage_fetch import fetch, stored_run

    run = stored_run(url)
    if runs is None:
        with tempfile.TemporaryDirectory() as scratch:
            runs = Path(saved_job(run.job(Path(scratch)).parent)["runs"])
    path = fetch(run, runs)
    return path / "checkpoints" / run.checkpoint if run.checkpoint else path


def to_resume(config: JobConfig, folder: Path | None) -> Path:
    """The run in `folder`, or the newest of the job's name, here or in its storage, as far as it got in either.

    Raises BadInput when there is none.
    """
    if not config.storage:
        return folder or newest_run(config.runs, config.name)
    from refork.cluster.storage_fetch import fetch, newest_stored, stored_run

    if folder:
        run = stored_run(f"{config.storage.rstrip('/')}/{folder.name}")
        return fetch(run, folder.parent) if run.has_checkpoint() else folder
    stored = newest_stored(config.storage, config.name)
    try:
        here = newest_run(config.runs, config.name)
    except BadInput:
        if stored is None:
            raise
        return fetch(stored, config.runs)
    return fetch(stored, config.runs) if stored and stored.name >= here.name else here
