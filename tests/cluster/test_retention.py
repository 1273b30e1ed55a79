"""Which checkpoints stay: the last, the best, every K-th; also after a run was opened again; and with little room."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.checkpoint_folder import committed
from refork.cluster.checkpoint_room import NoRoom, Room
from refork.cluster.checkpoints import RunCheckpoints
from refork.cluster.retention import Retention, check_retention, judged
from refork.envs.forkable import BadInput, InfraFailure
from refork.scripts.job import read_job

from tests.small_disk import small_disk

MB = 10**6


def _name(step: int) -> str:
    return f"step-{step:08d}"


NAMES = [_name(step) for step in (2, 4, 6, 8, 10)]


def _steps(names: set[str]) -> list[int]:
    return sorted(int(name.split("-")[1]) for name in names)


def _metrics(folder: Path, **values: float) -> Path:
    """`metrics.jsonl` with validation/resolved by step, as `_4=0.5`."""
    path = folder / "metrics.jsonl"
    rows = [{"step": int(step[1:]), "validation/resolved": value, "loss": -value} for step, value in values.items()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 9, "torn')
    return path


def test_the_last_the_best_and_every_kth_stay(tmp_path: Path) -> None:
    metrics = _metrics(tmp_path, _2=0.1, _4=0.7, _8=0.7, _10=0.2)
    assert _steps(Retention(1).kept(NAMES)) == [10]
    assert _steps(Retention(2, every=3).kept(NAMES)) == [6, 8, 10]
    assert _steps(Retention(1, best=1, metrics=metrics).kept(NAMES)) == [4, 10]
    assert _steps(Retention(1, best=1, best_of="loss", metrics=metrics).kept(NAMES)) == [2, 10]
    assert _steps(Retention(1, best=1, best_of="none", metrics=metrics).kept(NAMES)) == [10]


def test_a_metric_that_is_never_logged_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun = Retention(1, best=1, best_of="validation/resolve", metrics=_metrics(tmp_path))
    begun.kept(NAMES)
    assert not caplog.messages  # nothing was judged yet
    _metrics(tmp_path, _4=0.7)
    for _ in range(2):
        begun.kept(NAMES)
    (said,) = caplog.messages
    assert "no metric 'validation/resolve' was logged" in said
    assert "nearest: validation/resolved;" in said


def test_the_best_is_of_those_that_are_there(tmp_path: Path) -> None:
    metrics = _metrics(tmp_path, _4=0.7, _6=0.3, _7=0.9, _8=0.5)
    assert _steps(Retention(1, best=1, metrics=metrics).kept(["step-00000006", "step-00000008", "step-00000010"])) == [
        8,
        10,
    ]


def test_what_may_be_given_up_is_neither_the_newest_nor_promised(tmp_path: Path) -> None:
    metrics = _metrics(tmp_path, _4=0.7)
    assert Retention(5, every=6, best=1, metrics=metrics).given_up(NAMES) == [_name(2), _name(8)]


def test_the_first_headline_metric_that_is_there_judges() -> None:
    rows = [{"step": 1, "validation/fraction": 0.5}, {"step": 2, "validation/fqe": 3.0, "validation/fraction": None}]
    assert judged(rows) == {1: 0.5}


def test_opening_a_run_again_holds_the_rule(tmp_path: Path) -> None:
    metrics, folder = _metrics(tmp_path, _2=0.9, _8=0.1), tmp_path / "checkpoints"
    store = CheckpointStore(folder, Retention(5))
    for step in (2, 4, 6, 8, 10):
        store.save(step, {})
    CheckpointStore(folder, Retention(1, every=6, best=1, metrics=metrics))
    assert [path.name for path in committed(folder)] == [_name(2), _name(6), _name(10)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--checkpoint.keep_best", "1"], "checkpoint.keep_best: nothing tells the best: set evaluate.every"),
        (["--checkpoint.best_of", "loss"], "add checkpoint.keep_best = 1"),
        (
            ["--checkpoint.keep_best", "1", "--evaluate.every", "9", "--trainer.updates", "20"],
            "saved every 10 and judged every 9 updates, none is both before update 90",
        ),
    ],
)
def test_a_best_that_could_never_be_told_is_refused(given: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        check_retention(read_job("chain_small", given))


def test_a_best_that_can_be_told_is_not_refused() -> None:
    check_retention(read_job("chain_small", ["--checkpoint.keep_best", "1", "--evaluate.every", "5"]))


def _state(megabytes: float) -> dict[str, torch.Tensor]:
    return {"weights": torch.zeros(int(megabytes * MB / 4))}


def test_a_budget_takes_older_ones_before_their_time_and_never_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Retention(5, every=4), room=Room(budget=int(3.5 * MB)))
    for step in (1, 4, 5):
        store.save(step, _state(1))
    store.save(6, _state(1))
    assert [path.name for path in committed(tmp_path)] == [_name(4), _name(5), _name(6)]
    with pytest.raises(NoRoom, match=r"takes 0\.002 GB beside 0\.002 GB that must stay, .*budget_gb is 0\.0035; raise"):
        store.save(7, _state(2))
    assert [path.name for path in committed(tmp_path)] == [_name(4), _name(5), _name(6)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with small_disk(tmp_path / "disk", "8m") as path:
        yield path


def _there(disk: Path) -> list[str]:
    return [path.name for path in committed(disk / "run")]


def test_on_a_disk_that_fills_up_training_goes_on_and_saves_when_there_is_room(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(disk / "run", Retention(3), room=Room(free=MB))
    with RunCheckpoints(store, updates=100) as run:
        for step in (1, 2, 3):
            run.save(step, _state(2))
        assert _there(disk) == [_name(1), _name(2), _name(3)]
        run.save(4, _state(2))
        assert _there(disk) == [_name(2), _name(3), _name(4)]
        (disk / "other").write_bytes(bytes(6 * MB // 4))
        run.save(5, _state(2))
        assert _there(disk) == [_name(4), _name(5)]
        (disk / "more").write_bytes(bytes(2 * MB))
        run.save(6, _state(2))
        run.save(7, _state(2))
        assert _there(disk) == [_name(4), _name(5)]
        (said,) = caplog.messages
        assert "update 6 is not saved: it takes 0.002 GB, 0.00285 GB can be had on the disk" in said
        assert "checkpoint.free_gb leaves 0.001 free" in said
        assert said.endswith("until then a stop loses what is after step-00000005")
        (disk / "more").unlink()
        run.save(8, _state(2))
        assert caplog.messages[1:] == ["there is room again: update 8 is saved"]
    assert _there(disk)[-1] == _name(8)


def test_the_last_save_may_take_the_reserve(disk: Path) -> None:
    store = CheckpointStore(disk / "run", Retention(1), room=Room(free=7 * MB))
    with RunCheckpoints(store, updates=2) as run:
        run.save(1, _state(4))
        assert _there(disk) == []
        run.save(2, _state(4))
    assert _there(disk) == [_name(2)]


def test_a_run_whose_last_save_found_no_room_ends_in_an_error(disk: Path) -> None:
    store = CheckpointStore(disk / "run", Retention(1))
    run = RunCheckpoints(store, updates=2)
    with run:
        run.save(1, _state(4))
    run.save(2, _state(7))
    with pytest.raises(InfraFailure, match=r"update 2 is not saved: it takes 0\.007 GB, .* newest: step-00000001"):
        run.__exit__(None)
    assert _there(disk) == [_name(1)]
