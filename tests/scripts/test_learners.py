"""A run on several learners as a person starts it: it is the run that one learner makes, whatever happens to one."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import committed, find
from refork.cluster.reaper import holders
from refork.replay.store import TrajectoryStore

from tests.scripts.commands import refork, rows, run_folder, start, wait_for_checkpoint, wait_for_row

CHAIN = ("chain_small", "--trainer.updates", "60", "--checkpoint.every", "10")
TWO = ("--cluster.learners", "2")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    done = refork(folder, "train", *CHAIN)
    assert done.returncode == 0, done.stderr
    return run_folder(folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    done = refork(folder, "train", *CHAIN, *TWO)
    assert done.returncode == 0, done.stderr
    assert "update 60/60" in done.stderr
    assert not holders(folder / ".refork")
    return run_folder(folder)


@pytest.mark.ray
def test_two_learners_make_the_run_of_one(alone: Path, pair: Path) -> None:
    """Up to the order of additions, which in the end turns a sampled action."""
    assert [row["step"] for row in rows(pair)] == [row["step"] for row in rows(alone)]
    for left, right in zip(rows(alone)[:20], rows(pair)[:20], strict=True):
        assert left == pytest.approx(right, abs=1e-3)
    kept = [sorted(path.name for path in (run / "trajectories").iterdir()) for run in (alone, pair)]
    assert kept[0] == kept[1]


@pytest.mark.ray
@pytest.mark.parametrize("victim", ["RayTrainWorker", "TrainController"])
def test_a_killed_learner_costs_nothing_and_nothing_is_there_twice(pair: Path, tmp_path: Path, victim: str) -> None:
    """Nor does what leads them."""
    process = start(tmp_path, "train", *CHAIN, *TWO)
    run = wait_for_checkpoint(tmp_path, process)
    os.kill(_named(victim, process.pid), signal.SIGKILL)
    _, told = process.communicate(timeout=180)
    assert process.returncode == 0, told
    assert "a learner was lost" in told
    assert rows(run) == rows(pair)
    networks = [read(find(path)).state["trainer"]["network"] for path in (run, pair)]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])
    assert [path.name for path in committed(run / "checkpoints")] == ["step-00000050", "step-00000060"]


@pytest.mark.ray
def test_two_learners_with_an_actor_each_make_the_same_run(pair: Path, tmp_path: Path) -> None:
    done = refork(tmp_path, "train", *CHAIN, *TWO, "--rollout.actors", "2")
    assert done.returncode == 0, done.stderr
    assert rows(run_folder(tmp_path)) == rows(pair)


@pytest.mark.ray
def test_one_learner_goes_on_from_the_checkpoint_of_two(pair: Path, tmp_path: Path) -> None:
    """The same tasks in the same order, the same numbers up to the order of additions."""
    run = tmp_path / "runs" / pair.name
    shutil.copytree(pair, run)
    shutil.rmtree(run / "checkpoints" / "step-00000060")
    done = refork(tmp_path, "train", str(run), "--resume", "--cluster.learners", "1")
    assert done.returncode == 0, done.stderr
    assert [row["step"] for row in rows(run)] == list(range(1, 61))
    for left, right in zip(rows(pair)[50:], rows(run)[50:], strict=True):
        assert left == pytest.approx(right, abs=1e-3)
    for update in range(50, 60):
        played = [[(g.task, g.episode) for g in TrajectoryStore(r / "trajectories").read(update)] for r in (pair, run)]
        assert played[0] == played[1]


@pytest.mark.ray
def test_a_log_is_learnt_from_by_two(tmp_path: Path) -> None:
    job = (
        "sepsis_small",
        "--trainer.updates",
        "2",
        "--trainer.steps_per_update",
        "20",
        "--env.options.episodes",
        "300",
    )
    found = []
    for name, more in (("one", ()), ("two", TWO)):
        (tmp_path / name).mkdir()
        done = refork(tmp_path / name, "train", *job, *more)
        assert done.returncode == 0, done.stderr
        found.append(rows(run_folder(tmp_path / name)))
    for left, right in zip(*found, strict=True):
        assert left == pytest.approx(right, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--cluster.learners", "1000"), "cluster.learners: 1000 learners need as many CPU cores"),
        (("--rollout.actors", "1", *TWO), "rollout.actors: 1 for 2 learners; every learner has its own"),
        (("--cluster.address", "127.0.0.1:1", *TWO), "cluster.address 127.0.0.1:1: nothing answers there"),
    ],
)
def test_what_cannot_be_is_said_before_the_start(more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = refork(tmp_path, "train", *CHAIN, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def _named(title: str, driver: int) -> int:
    """The newest process of that run that Ray calls so."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "cmdline").read_bytes().decode()
        except OSError:
            continue
        if title in name and _descends(int(path.name), driver):
            found.append(int(path.name))
    assert found, f"no {title} is running"
    return max(found)


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False


@pytest.mark.ray
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_learners_told_to_end_commit_their_last_update_first(pair: Path, tmp_path: Path, stop: signal.Signals) -> None:
    job = ("chain_small", "--trainer.updates", "60", "--checkpoint.every", "59", *TWO)
    process = start(tmp_path, "train", *job)
    run = wait_for_row(tmp_path, process, 5)
    process.send_signal(stop)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert told.splitlines()[-2].startswith("to go on: refork train")
    (saved,) = committed(run / "checkpoints")
    assert 5 <= read(saved).step < 59
    assert not holders(tmp_path / ".refork")
    done = refork(tmp_path, "train", str(run), "--resume")
    assert done.returncode == 0, done.stderr
    assert rows(run) == rows(pair)
