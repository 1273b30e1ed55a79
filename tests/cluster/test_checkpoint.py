"""Checkpoints are whole or not there; what is wrong with one is said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from refork.cluster.checkpoint import CheckpointStore, read
from refork.cluster.checkpoint_folder import COMMIT, CheckpointError, committed, find
from refork.cluster.retention import Retention

from tests.small_disk import small_disk


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def _saved(folder: Path, *steps: int, keep: int = 2) -> CheckpointStore:
    store = CheckpointStore(folder, Retention(keep), lambda: {"job": {"seed": 3}})
    for step in steps:
        store.save(step, {"step": step, "weights": torch.full((3,), float(step))})
    return store


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    loaded = _saved(tmp_path, 10).load_newest()
    assert loaded is not None
    assert (loaded.step, loaded.meta) == (10, {"job": {"seed": 3}})
    assert loaded.state["weights"].tolist() == [10.0, 10.0, 10.0]


def test_the_newest_are_kept_and_older_ones_dropped(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2, 3, 4)
    assert _names(tmp_path) == ["step-00000003", "step-00000004"]


def test_steps_are_ordered_as_numbers_and_a_step_saved_again_is_newer(tmp_path: Path) -> None:
    store = _saved(tmp_path, 9, 10, keep=5)
    store.save(10, {"again": True})
    assert [p.name for p in committed(tmp_path)] == ["step-00000009", "step-00000010", "step-00000010.1"]
    loaded = store.load_newest()
    assert loaded is not None
    assert loaded.state == {"again": True}


def test_opening_again_prunes_and_clears_what_was_half_written(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2, 3, keep=3)
    (tmp_path / ".tmp-99").mkdir()
    half = tmp_path / "step-00000004"
    half.mkdir()
    (half / "meta.json").write_text("{")
    CheckpointStore(tmp_path, Retention(2))
    assert _names(tmp_path) == ["step-00000002", "step-00000003"]


def test_none_is_newest_in_an_empty_folder(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "new").load_newest() is None


def test_without_commit_it_is_skipped_and_refused(tmp_path: Path) -> None:
    _saved(tmp_path, 1, 2)
    (tmp_path / "step-00000002" / COMMIT).unlink()
    assert find(tmp_path).name == "step-00000001"
    with pytest.raises(CheckpointError, match=r"step-00000002: has no COMMIT file: it was never finished"):
        read(tmp_path / "step-00000002")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "is of kind 'other', not 'refork-training'"),
        ({"version": 7}, "has format version 7, this refork reads 2"),
        ({"step": 5}, r"meta\.json is damaged"),
    ],
)
def test_wrong_kind_and_version_and_damage_are_told_apart(tmp_path: Path, change: dict, message: str) -> None:
    _saved(tmp_path, 1)
    head = tmp_path / "step-00000001" / "meta.json"
    head.write_text(json.dumps(json.loads(head.read_text()) | change))
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path / "step-00000001")


@pytest.mark.parametrize("name", ["state.json", "arrays.npz"])
def test_a_flipped_byte_is_found(tmp_path: Path, name: str) -> None:
    _saved(tmp_path, 1)
    path = tmp_path / "step-00000001" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        read(path.parent)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such checkpoint or run"):
        find(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds no committed checkpoint"):
        find(tmp_path)


_KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.retention import Retention

folder, fatal = Path(sys.argv[1]), int(sys.argv[2])
store = CheckpointStore(folder, Retention(1))
count = 0
def touch(what):
    global count
    count += 1
    if count == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
def hook(event, arguments):
    if event in {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"} and str(folder) in str(arguments[0]):
        touch(event)
sync = os.fsync
def fsync(descriptor):
    touch("before fsync")
    sync(descriptor)
    touch("after fsync")
os.fsync = fsync
sys.addaudithook(hook)
store.save(2, {"weights": torch.full((3,), 2.0)})
print(count)
"""


def _save_killed_at(folder: Path, point: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _KILLED, str(folder), str(point)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _forked_save_killed_at(folder: Path, point: int) -> int:
    """The same in a forked child, which spares the imports; its wait status."""
    child = os.fork()
    if child == 0:
        sys.argv = ["-", str(folder), str(point)]
        try:
            exec(compile(_KILLED.replace("print(count)", ""), "killed", "exec"), {})
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def test_killed_at_any_point_of_saving_a_whole_checkpoint_is_left(tmp_path: Path) -> None:
    whole = _save_killed_at(tmp_path / "whole", -1)
    points = int(whole.stdout)
    assert points > 20
    for point in range(1, points + 1):
        folder = tmp_path / str(point)
        _saved(folder, 1, keep=1)
        assert _forked_save_killed_at(folder, point) == 9, point
        store = CheckpointStore(folder, Retention(1))
        loaded = store.load_newest()
        assert loaded is not None, point
        assert loaded.state["weights"].tolist() == [float(loaded.step)] * 3
        store.save(3, {"weights": torch.full((3,), 3.0)})
        assert _names(folder) == ["step-00000003"], point


def test_a_full_disk_leaves_the_old_checkpoint_and_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m"):
        store = _saved(tmp_path / "checkpoints", 1)
        with pytest.raises(OSError, match=r"takes 0\.00419 GB, .* can be had on the disk"):
            store.save(2, {"weights": torch.zeros(1 << 20)})
        assert _names(tmp_path / "checkpoints") == ["step-00000001"]
        store.save(3, {"weights": torch.zeros(4)})
        assert find(tmp_path).name == "step-00000003"
