"""What a job is when another machine runs it: whole paths, the cluster's address, and a folder that holds it alone."""

from __future__ import annotations

from pathlib import Path

from refork.cluster.resources import PRIVATE, Need, need_of
from refork.cluster.toml import dumps
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig


def on_cluster(job: JobConfig) -> JobConfig:
    """The job as its driver is to run it, a process of the cluster. Raises BadInput for what means nothing there."""
    if job.cluster.address != PRIVATE:
        raise BadInput(
            f"cluster.address: {job.cluster.address!r} is for refork train; a launched job runs where --address leads: "
            "leave it out"
        )
    if not job.runs.is_absolute():
        raise BadInput(
            f"runs: {str(job.runs)!r} would be a folder of the job's working copy, which the cluster throws away; give "
            "the whole path of one that lasts: --runs /shared/runs"
        )
    address = "auto" if _placed_by_ray(need_of(job)) else PRIVATE
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"address": address})})


def _placed_by_ray(need: Need) -> bool:
    return any(need.total.values())


def outside_paths(job: JobConfig) -> dict[str, str]:
    """Files that the job names, by key; they are not sent."""
    paths = {"env.tasks": job.env.tasks, "env.options.schema_file": job.env.options.get("schema_file")}
    return {key: str(path) for key, path in paths.items() if path is not None}


def write_folder(job: JobConfig, folder: Path) -> None:
    """All that is sent beside the wheel: the job as resolved."""
    folder.mkdir()
    (folder / "job.toml").write_text(dumps(job.model_dump(mode="json")), encoding="utf-8")
