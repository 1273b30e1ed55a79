"""Wrong files of arrays: each fault is named with its place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from minari.dataset.minari_storage import MinariStorage
from pyarrow import parquet as pq
from refork.envs.forkable import BadInput
from refork.replay.formats.kinds import kind_of, write_as

from tests.replay.formats.files import read
from tests.trainers.logs import log_for


def changed(path: Path, change: Callable[[Any], None]) -> Path:
    """A D4RL file of ours with something else in it."""
    write_as(log_for("discrete", episodes=4), path, "d4rl")
    with h5py.File(path, "a") as file:
        change(file)
    return path


def put(name: str, place: object, value: object) -> Callable[[Any], None]:
    """A change: one value of an array."""

    def change(file: Any) -> None:
        file[name][place] = value

    return change


def instead(name: str, value: object) -> Callable[[Any], None]:
    """A change: another array, or a group (None)."""

    def change(file: Any) -> None:
        del file[name]
        if value is None:
            file.create_group(name)
        else:
            file[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("observations", (7, 2), np.nan), r"row 6, column 'next_observations\[2\]'"),
        (put("rewards", 9, np.inf), "row 9, column 'rewards': found inf, expected a finite number"),
        (put("actions", 3, 4), r"row 3, column 'actions': found 4, expected an action 0 ... 3 \(4 are declared\)"),
        (put("terminals", 2, True), "row 3"),
        (put("next_observations", (4, 1), 9.0), r"row 4, column 'next_observations\[1\]': found 9, expected"),
        (put("infos/action_log_probs", 5, 0.5), "row 5, column 'behaviour'"),
        (put("infos/dt", 5, 0.0), "row 5, column 'dt': found 0, expected a time above 0"),
        (lambda file: file.pop("rewards"), "array 'rewards' is missing; the file has: "),
        (lambda file: file.attrs.pop("refork"), "give --schema FILE"),
        (lambda file: file.attrs.update(refork="{"), "its own declaration .* cannot be read; give --schema FILE"),
        (instead("observations", None), "'observations' is a group, expected an array of numbers"),
        (instead("rewards", np.array([b"a"] * 24)), r"'rewards' is \|S1 of shape \(24,\), expected an array of"),
        (instead("rewards", 1.0), r"'rewards' is float64 of shape \(\), expected an array of numbers, one row a step"),
        (instead("rewards", np.zeros((24, 2))), r"'rewards' has shape \(24, 2\), expected one number a row"),
    ],
)
def test_a_wrong_d4rl_file_is_named(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    path = changed(tmp_path / "log.hdf5", change)
    if message == "row 3":  # an end in the middle only makes two episodes of one: the next observations still fit
        assert read(path).episodes == 5
        return
    with pytest.raises(BadInput, match=message) as fault:
        read(path)
    assert "log.hdf5" in str(fault.value)


def test_arrays_of_other_lengths_are_named(tmp_path: Path) -> None:
    def shorten(file: Any) -> None:
        kept = file["rewards"][:-1]
        del file["rewards"]
        file["rewards"] = kept

    with pytest.raises(BadInput, match="has 24 rows, expected 23 as rewards has"):
        read(changed(tmp_path / "log.hdf5", shorten))


@pytest.mark.parametrize("kind", ["d4rl", "rllib"])
def test_a_file_cut_short_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("log.hdf5" if kind == "d4rl" else "log.parquet")
    write_as(log_for("discrete", episodes=4), path, kind)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(BadInput, match=f"{path.name}: .*cannot be read as"):
        read(path)


def test_a_broken_minari_folder_is_refused(tmp_path: Path) -> None:
    write_as(log_for("discrete", episodes=4), tmp_path / "log", "minari")
    data = tmp_path / "log" / "data" / "main_data.hdf5"
    data.write_bytes(data.read_bytes()[:500])
    with pytest.raises(BadInput, match="log: cannot be read as a Minari data set"):
        read(tmp_path / "log")


def test_a_minari_fault_names_episode_and_step(tmp_path: Path) -> None:
    write_as(log_for("discrete", episodes=4), tmp_path / "log", "minari")
    with h5py.File(tmp_path / "log" / "data" / "main_data.hdf5", "a") as file:
        file["episode_2/actions"][5] = 7
    with pytest.raises(
        BadInput, match=r"log: episode 2: step 5, column 'actions': found 7, expected an action 0 ... 3"
    ):
        read(tmp_path / "log")


@pytest.mark.parametrize("which", ["observation", "action"])
def test_minari_spaces_that_are_no_log_are_refused(tmp_path: Path, which: str) -> None:
    named, plain = spaces.Dict({"a": spaces.Discrete(2)}), spaces.Discrete(2)
    (tmp_path / "set").mkdir()
    pair = (named, plain) if which == "observation" else (plain, named)
    MinariStorage.new(tmp_path / "set" / "data", *pair)
    with pytest.raises(BadInput, match=rf"{which}s are Dict.*expected"):
        read(tmp_path / "set")


def test_an_rllib_file_without_a_column_is_refused(tmp_path: Path) -> None:
    write_as(log_for("discrete", episodes=4), tmp_path / "log.parquet", "rllib")
    table = pq.read_table(tmp_path / "log.parquet").drop_columns(["new_obs"])
    pq.write_table(table, tmp_path / "less.parquet")
    with pytest.raises(BadInput, match=r"less\.parquet: column 'new_obs' is missing; the file has: eps_id"):
        read(tmp_path / "less.parquet")


def test_two_rewards_in_a_row_of_rllib_are_refused(tmp_path: Path) -> None:
    write_as(log_for("discrete", episodes=4), tmp_path / "log.parquet", "rllib")
    table = pq.read_table(tmp_path / "log.parquet")
    twice = pa.array([[float(k), 0.0] for k in range(24)])
    table = table.set_column(table.schema.get_field_index("rewards"), "rewards", twice)
    pq.write_table(table, tmp_path / "more.parquet")
    with pytest.raises(BadInput, match=r"more\.parquet: row 1, column 'rewards': found 2 values, expected one number"):
        read(tmp_path / "more.parquet")


def test_shifted_rllib_rows_are_found(tmp_path: Path) -> None:
    write_as(log_for("discrete", episodes=4), tmp_path / "log.parquet", "rllib")
    table = pq.read_table(tmp_path / "log.parquet")
    pq.write_table(table.take([k for k in range(24) if k != 8]), tmp_path / "less.parquet")
    with pytest.raises(BadInput, match=r"less\.parquet: row 8, column 'new_obs\[0\]'"):
        read(tmp_path / "less.parquet")


def test_an_unknown_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("hello")
    with pytest.raises(BadInput, match=r"log\.txt: not a log of a known format \(native, rllib, csv"):
        kind_of(tmp_path / "log.txt")
    with pytest.raises(BadInput, match="there is no such file"):
        kind_of(tmp_path / "nothing.csv")
