"""The main job as a person runs it, its sandboxes in the stand-in for the service: train, go back, clean up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from refork.envs.swe.taskset import ENVIRONMENT

from tests.envs.swe.toy import toy_tasks
from tests.scripts.commands import refork, run_folder

pytest.importorskip("e2b")
from .e2b_service import KEY, Service, lacking, serving

pytestmark = [pytest.mark.skipif(bool(lacking()), reason=lacking()), pytest.mark.slow]
JOB = ("--env.backend", "e2b", "--env.tasks", "set", "--rollout.actors", "0")
SIZE = ("--trainer.updates", "1", "--trainer.tasks_per_update", "1", "--trainer.group", "2", "--trainer.forks", "1")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch, serving(patch.setenv) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, python_env: Path) -> Path:
    """With a task set whose packages are those that its tests need: they are sent to the service."""
    folder = tmp_path_factory.mktemp("repair")
    (folder / "set").mkdir()
    toy_tasks(folder / "set", "arithmetic")
    (folder / "set" / ENVIRONMENT).unlink()
    (folder / "set" / ENVIRONMENT).symlink_to(python_env)
    return folder


@pytest.mark.timeout(300)
def test_a_run_trains_in_the_service_and_leaves_only_what_it_kept(service: Service, folder: Path) -> None:
    done = refork(folder, "train", "repair_small", *JOB, *SIZE, timeout_s=240)
    assert done.returncode == 0, done.stderr
    run = run_folder(folder)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["infra_errors"], row["timeouts"]) for row in rows] == [(1, 0, 0)]
    assert not service.machines
    assert KEY not in done.stdout + done.stderr
    assert not [path for path in run.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    done = refork(folder, "fork", str(run), "toy-arithmetic", "--step", "0", "-n", "2", timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert "differential: " in done.stdout
    done = refork(folder, "clean")
    assert "unused copies of workspaces: " in done.stdout
    assert not service.machines


def test_a_wrong_key_is_one_line_and_exit_code_2(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("E2B_API_KEY", "e2b_other")
    done = refork(folder, "train", "repair_small", *JOB, *SIZE, timeout_s=240)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("refork: the sandbox service refuses the key in E2B_API_KEY")
    assert "e2b_other" not in done.stdout + done.stderr
