"""Logs on disk and in use: places of transitions, subsets, splits, returns, whole-or-nothing files."""

from pathlib import Path

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogArrays, LogSpec, ObservationSpec
from refork.replay.transitions import ARRAYS, digest, load, of, save, split_by_patient


def small_log() -> LogArrays:
    """Three episodes of 2, 1 and 3 steps of two patients; the observation of row r is r."""
    return LogArrays(
        LogSpec("", ObservationSpec("vector", 1), ActionSpec("discrete", (2,)), "units"),
        observations=np.arange(9, dtype=np.float32)[:, None],
        actions=np.array([[0], [1], [0], [1], [1], [0]]),
        rewards=np.array([1, 2, 3, 4, 5, 6], np.float32),
        terminated=np.array([0, 1, 0, 0, 0, 1], bool),
        truncated=np.array([0, 0, 1, 0, 0, 0], bool),
        starts=np.array([0, 2, 3, 6]),
        patients=np.array([0, 1, 0]),
        behaviour=np.full(6, 0.5, np.float32),
        dt=np.array([1, 1, 1, 2, 1, 1], np.float32),
    )


def test_a_transition_knows_its_rows() -> None:
    log = of(small_log())
    assert log.rows(np.arange(6)).tolist() == [0, 1, 3, 5, 6, 7]
    assert log.steps_of(np.array([2, 0])).tolist() == [3, 4, 5, 0, 1]


def test_a_subset_keeps_what_followed_each_episode() -> None:
    part = of(small_log()).subset(np.array([2, 1]))
    assert part.observations[:, 0].tolist() == [5, 6, 7, 8, 3, 4]
    assert part.rewards.tolist() == [4, 5, 6, 3]
    assert part.starts.tolist() == [0, 3, 4]
    assert part.truncated.tolist() == [False, False, False, True]


def test_returns_discount_by_elapsed_time() -> None:
    assert of(small_log()).returns(0.5).tolist() == [1 + 0.5 * 2, 3, 4 + 0.25 * 5 + 0.125 * 6]


def test_what_is_saved_is_loaded_and_hashes_the_same(tmp_path: Path) -> None:
    log = small_log()
    save(log, tmp_path / "log")
    found = load(tmp_path / "log")
    assert isinstance(found.observations, np.memmap)
    assert found.spec == log.spec
    for name in ARRAYS:
        assert np.array_equal(getattr(found, name), getattr(log, name)) or getattr(log, name) is None
    assert digest(found) == digest(log)


def test_a_patient_is_in_one_part_only() -> None:
    log = of(small_log())
    for seed in range(5):
        parts = split_by_patient(log, (0.5, 0.5, 0.0), seed)
        assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2]
        assert not set(log.patients[parts[0]]) & set(log.patients[parts[1]])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (None, "not a log"),
        ("[1]", "not a log"),
        ("{", "not a log"),
        ('{"format": 0}', "format 0, this version reads 1"),
        ('{"format": 1}', "key 'patient_names' is missing"),
        ('{"format": 1, "spec": {}, "patient_names": []}', "description of the log: env: Field required"),
    ],
)
def test_a_folder_without_a_log_is_named(tmp_path: Path, head: str | None, message: str) -> None:
    if head is not None:
        (tmp_path / "log.json").write_text(head)
    for name in ARRAYS:
        np.save(tmp_path / f"{name}.npy", np.zeros(1))
    with pytest.raises(BadInput, match=message):
        load(tmp_path)


def test_an_array_cut_short_is_named(tmp_path: Path) -> None:
    save(small_log(), tmp_path / "log")
    path = tmp_path / "log" / "rewards.npy"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BadInput, match=r"rewards\.npy: cannot be read"):
        load(tmp_path / "log")
