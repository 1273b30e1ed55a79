"""Run folders: never the same one twice, held by one process, found again by name."""

from pathlib import Path

import pytest
from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.run_folder import RunFolder, create, newest_run, saved_job
from refork.envs.forkable import BadInput
from refork.scripts.job import read_job
from refork.trainers.config import JobConfig


def _job(runs: Path, name: str = "x") -> JobConfig:
    return read_job("chain_small", ["--runs", str(runs), "--name", name])


def test_the_resolved_job_is_kept_and_is_the_same_job(tmp_path: Path) -> None:
    job = _job(tmp_path)
    with create(job) as folder:
        assert read_job(str(folder.path / "job.toml")) == job
        assert JobConfig.model_validate(saved_job(folder.path)) == job


def test_a_thousand_runs_at_once_have_names_of_their_own(tmp_path: Path) -> None:
    job = _job(tmp_path)
    names = set()
    for _ in range(20):
        with create(job) as folder:
            names.add(folder.path.name)
    assert len(names) == 20


def test_one_process_holds_a_run(tmp_path: Path) -> None:
    folder = create(_job(tmp_path))
    with pytest.raises(BadInput, match=r"process \d+ is running this run"):
        RunFolder(folder.path)
    folder.close()
    RunFolder(folder.path).close()


def _run(runs: Path, name: str, step: int | None) -> None:
    (runs / name).mkdir(parents=True)
    if step is not None:
        CheckpointStore(runs / name / "checkpoints").save(step, {})


def test_the_newest_run_of_that_very_name_with_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    _run(tmp_path, "x-20260101-000000", 1)
    _run(tmp_path, "x-20260102-000000", 1)
    _run(tmp_path, "x-20260102-000000.2", 1)
    _run(tmp_path, "x-20260103-000000", None)
    _run(tmp_path, "x-small-20260104-000000", 1)
    assert newest_run(tmp_path, "x").name == "x-20260102-000000.2"


def test_nothing_to_resume_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run named x to resume"):
        newest_run(tmp_path / "runs", "x")
    _run(tmp_path, "x-20260103-000000", None)
    with pytest.raises(BadInput, match="holds no committed checkpoint to resume"):
        newest_run(tmp_path, "x")
    with pytest.raises(BadInput, match="not the folder of a run"):
        saved_job(tmp_path)
