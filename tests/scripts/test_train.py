"""Training as a person runs it: run folders, resuming, interrupting, killing; nothing left behind."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import committed, find
from refork.cluster.reaper import holders

from tests.scripts.commands import SMALL, refork, rows, run_folder, start, wait_for_checkpoint

ENDLESS = ("chain_small", "--trainer.updates", "1000000", "--checkpoint.every", "5")


def _weights(run: Path) -> tuple[int, np.ndarray]:
    loaded = read(find(run))
    return loaded.step, loaded.state["trainer"]["network"]["skip"].numpy()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six updates that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    done = refork(folder, "train", *SMALL)
    assert done.returncode == 0, done.stderr
    return run_folder(folder)


def test_a_run_folder_holds_the_job_the_metrics_and_committed_checkpoints(whole: Path) -> None:
    top = {"job.toml", "versions.json", "metrics.jsonl", "checkpoints", "trajectories", "lock"}
    assert {p.name for p in whole.iterdir()} == top
    assert [p.name for p in committed(whole / "checkpoints")] == ["step-00000004", "step-00000006"]
    assert 'name = "chain_small"' in (whole / "job.toml").read_text()
    assert [row["step"] for row in rows(whole)] == [1, 2, 3, 4, 5, 6]
    assert len(list((whole / "trajectories").iterdir())) == 6


def test_the_same_job_again_is_the_same_run(tmp_path: Path, whole: Path) -> None:
    again = refork(tmp_path, "train", str(whole / "job.toml"))
    assert again.returncode == 0, again.stderr
    assert rows(run_folder(tmp_path)) == rows(whole)


def test_stopped_and_resumed_equals_never_stopped(tmp_path: Path, whole: Path) -> None:
    horizon = ("--trainer.horizon", "6")
    first = refork(tmp_path, "train", *SMALL, "--trainer.updates", "4", *horizon)
    assert first.returncode == 0, first.stderr
    second = refork(tmp_path, "train", *SMALL, *horizon, "--resume")
    assert second.returncode == 0, second.stderr
    run = run_folder(tmp_path)
    assert rows(run) == rows(whole)
    assert _weights(run)[0] == 6
    assert _weights(run)[1].tobytes() == _weights(whole)[1].tobytes()


def test_a_resumed_run_must_be_the_same_job(tmp_path: Path) -> None:
    assert refork(tmp_path, "train", *SMALL).returncode == 0
    done = refork(tmp_path, "train", *SMALL, "--trainer.learning_rate", "0.5", "--resume")
    assert "trainer.learning_rate: the run in" in done.stderr
    assert "has 0.2, this job 0.5" in done.stderr
    assert done.returncode == 2


def test_a_run_from_before_a_key_was_there_goes_on(tmp_path: Path) -> None:
    """The default of a new key is what was done without it; a value that differs from it is another run."""
    assert refork(tmp_path, "train", *SMALL).returncode == 0
    saved = run_folder(tmp_path) / "job.toml"
    older = "".join(line for line in saved.read_text().splitlines(True) if not line.startswith("distil"))
    assert older != saved.read_text()
    saved.write_text(older)
    done = refork(tmp_path, "train", *SMALL, "--trainer.updates", "7", "--resume")
    assert done.returncode == 0, done.stderr
    saved.write_text(older)
    done = refork(tmp_path, "train", *SMALL, "--trainer.distil", "1", "--trainer.which", "mixed", "--resume")
    assert "trainer.distil: the run in" in done.stderr
    assert "has 0.0, this job 1.0" in done.stderr


def _interrupted(folder: Path, what: signal.Signals) -> Path:
    process = start(folder, "train", *ENDLESS)
    run = wait_for_checkpoint(folder, process)
    process.send_signal(what)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    to_go_on = f"to go on: refork train {run.relative_to(folder)} --resume"
    assert said.splitlines()[-2:] == [to_go_on, "refork: interrupted"]
    return run


def test_ctrl_c_saves_says_how_to_go_on_and_goes_on(tmp_path: Path) -> None:
    run = _interrupted(tmp_path, signal.SIGINT)
    step = _weights(run)[0]
    assert rows(run)[-1]["step"] in (step, step + 1)
    done = refork(tmp_path, "train", str(run), "--trainer.updates", str(step + 2), "--resume")
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in rows(run)] == list(range(1, step + 3))


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    _interrupted(tmp_path, signal.SIGTERM)


def test_a_run_is_held_by_one_process(tmp_path: Path) -> None:
    process = start(tmp_path, "train", *ENDLESS)
    try:
        run = wait_for_checkpoint(tmp_path, process)
        done = refork(tmp_path, "train", str(run), "--resume")
        assert done.returncode == 2
        assert f"process {process.pid} is running this run" in done.stderr
    finally:
        process.kill()
        process.communicate()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o500)
    assert refork(tmp_path, "train", *SMALL).returncode == 2


def test_a_file_where_runs_should_be_is_an_error_not_another_place(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    done = refork(tmp_path, "train", *SMALL)
    assert done.returncode == 2
    assert "runs: runs cannot be written here: File exists; choose another --runs" in done.stderr


def _ray_folder(pid: int) -> Path:
    """The temporary folder of the Ray that process `pid` started."""
    labels = {path.parent: path.read_text() for path in Path("/tmp").glob("refork-ray-*/owner")}
    (folder,) = [path for path, label in labels.items() if label.split("-")[1] == str(pid)]
    return folder


@pytest.mark.ray
def test_a_killed_driver_leaves_no_actor_and_resumes_as_if_never_stopped(tmp_path: Path) -> None:
    process = start(tmp_path, "train", *ENDLESS, "--rollout.actors", "2", "--trainer.horizon", "9")
    run = wait_for_checkpoint(tmp_path, process)
    folder = _ray_folder(process.pid)
    assert any("ray::Rollout" in Path(f"/proc/{pid}/cmdline").read_text() for pid in holders(folder))
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while (left := holders(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
    assert not folder.exists()
    end = str(_weights(run)[0] + 2)
    done = refork(tmp_path, "train", str(run), "--trainer.updates", end, "--rollout.actors", "0", "--resume")
    assert done.returncode == 0, done.stderr
    other = tmp_path / "other"
    other.mkdir()
    assert refork(other, "train", *ENDLESS, "--trainer.updates", end, "--trainer.horizon", "9").returncode == 0
    assert _weights(run)[1].tobytes() == _weights(run_folder(other))[1].tobytes()


@pytest.mark.ray
def test_ctrl_c_with_actors_leaves_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "train", *ENDLESS, "--rollout.actors", "2")
    wait_for_checkpoint(tmp_path, process)
    folder = _ray_folder(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert holders(folder) == []
    assert not folder.exists()
