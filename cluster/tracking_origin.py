"""Where a run comes from: the git state of the folder that the command was started in, and versions of packages."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refork.cluster.wandb_sink import About
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig

PACKAGES = ("refork", "torch", "ray")
GIT_TIMEOUT_S = 10


def origin(folder: Path) -> dict[str, Any]:
    """`{"git": ..., "versions": ...}` of the run in `folder`, kept in its `versions.json` when the run began.

    Raises BadInput when that cannot be written.
    """
    path = folder / "versions.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(known, dict):
            return known
    except (OSError, ValueError):
        pass  # it is written now
    found = {"git": git_state(Path.cwd()), "versions": {name: _version(name) for name in PACKAGES}}
    try:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}; choose another --runs") from error
    return found


def about(job: JobConfig, folder: Path) -> About:
    """What W&B is told of a run in `folder`: its config holds the job as resolved, and the run's origin."""
    tags = (f"seed-{job.seed}", job.trainer.kind)
    config = {**job.model_dump(mode="json"), **origin(folder)}
    return About(job.tracking.project, job.tracking.group or job.name, tags, config)


def git_state(folder: Path) -> dict[str, Any] | None:
    """`{"commit": ..., "branch": ..., "dirty": ...}`; None outside git, without a commit, or without git."""
    commit, status = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain")
    if commit is None or status is None:
        return None
    return {"commit": commit, "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"), "dirty": bool(status)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
