"""What is written in a format is read back the same, by us and by the format's own package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage
from refork.envs.clinical.cohort import SyntheticCohort
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.envs.forkable import BadInput
from refork.replay.formats.kinds import KINDS, kind_of, native_of, to_native, write_as
from refork.replay.transitions import ARRAYS, Transitions, load, notes_of, of, save

from tests.replay.formats.files import read
from tests.trainers.logs import log_for

SUFFIX = {"csv": ".csv", "parquet": ".parquet", "d4rl": ".hdf5", "rllib": ".parquet", "minari": ""}
LOGS = ("states", "cohort", "discrete", "continuous", "factored_discrete", "factored_continuous")


def log_of(name: str) -> Transitions:
    """A log whose episodes differ in length and whose behaviour is known in part."""
    match name:
        case "states":
            return of(IcuSepsis().log("expert", 20, 0))
        case "cohort":
            return of(SyntheticCohort("factored").log("clinician", 20, 0))
    log = log_for(name).subset(np.array([3, 1, 29]))
    log.patients[:] = [0, 1, 0]
    log.behaviour[1::3] = np.nan
    log.dt[::4] = 2.5
    return log


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("kind", SUFFIX)
def test_a_log_comes_back_as_it_was(tmp_path: Path, kind: str, name: str) -> None:
    log, path = log_of(name), tmp_path / f"log{SUFFIX[kind]}"
    write_as(log, path, kind)
    assert kind_of(path) == kind
    found = read(path)
    for array in ARRAYS:
        expected = getattr(log, array)
        if array != "state_features" and expected is not None:
            assert getattr(found, array).dtype == expected.dtype, array
            assert np.array_equal(getattr(found, array), expected, equal_nan=expected.dtype.kind == "f"), array
    assert found.spec.action.sizes == log.spec.action.sizes
    assert (found.spec.reward, found.spec.step, found.spec.horizon) == ("units", "step", 0) or name in LOGS[:2]
    if name == "cohort":
        assert found.spec == log.spec


def test_a_table_of_features_without_names_comes_back(tmp_path: Path) -> None:
    log = log_of("discrete")
    nameless = replace(log, spec=replace(log.spec, observation=replace(log.spec.observation, names=())))
    write_as(nameless, tmp_path / "log.hdf5", "d4rl")
    named = read(tmp_path / "log.hdf5")
    assert named.spec.observation.names[0] == "observations[0]"
    write_as(named, tmp_path / "log.csv", "csv")
    assert np.array_equal(read(tmp_path / "log.csv").observations, log.observations)


def test_every_format_is_tried() -> None:
    assert set(SUFFIX) == set(KINDS)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_keep_what_is_allowed(tmp_path: Path, kind: str) -> None:
    log = log_of("factored_discrete")
    allowed = np.random.default_rng(0).random((len(log.observations), 3, 4)) < 0.5
    rows = log.rows(np.arange(len(log)))
    for agent in range(3):
        allowed[rows, agent, log.actions[:, agent]] = True
    masked = replace(log, allowed=allowed)
    write_as(masked, tmp_path / f"log.{kind}", kind)
    assert np.array_equal(read(tmp_path / f"log.{kind}").allowed, allowed)


@pytest.mark.parametrize("kind", ["d4rl", "rllib", "minari"])
def test_a_format_that_cannot_hold_a_mask_refuses(tmp_path: Path, kind: str) -> None:
    log = log_of("discrete")
    masked = replace(log, allowed=np.ones((len(log.observations), 1, 4), bool))
    with pytest.raises(BadInput, match="hold no mask of allowed actions"):
        write_as(masked, tmp_path / f"log{SUFFIX[kind]}", kind)


def test_minari_opens_what_is_written(tmp_path: Path) -> None:
    log = log_of("discrete")
    write_as(log, tmp_path / "log", "minari")
    found = minari.MinariDataset(tmp_path / "log" / "data")
    assert (found.total_episodes, found.total_steps, found.action_space.n) == (3, 18, 4)
    episode = found[1]
    assert np.array_equal(episode.observations, log.observations[7:14])
    assert np.array_equal(episode.actions, log.actions[6:12, 0])
    assert episode.terminations.tolist() == [False] * 5 + [True]


def test_minari_spaces_declare_a_foreign_data_set(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    made = MinariStorage.new(
        tmp_path / "set" / "data", spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([3, 2], start=[1, 0])
    )
    seen = np.array([[0, 0.5], [0.25, 0], [1, 1]], np.float32)
    episode = EpisodeBuffer(
        None, None, None, seen, np.array([[1, 0], [3, 1]]), [1.0, 2.0], [False, False], [False, True]
    )
    made.update_episodes([episode])
    log = read(tmp_path / "set")
    assert log.spec.action.sizes == (3, 2)
    assert log.actions.tolist() == [[0, 0], [2, 1]]
    assert log.observations.tolist() == seen.tolist()
    assert log.truncated.tolist() == [False, True]


def test_d4rl_converts_log_probabilities_and_cuts_what_has_no_next_row(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file["observations"] = np.arange(10.0).reshape(5, 2)
        file["actions"] = np.linspace(-1, 1, 5)[:, None]
        file["rewards"] = np.arange(5.0)
        file["terminals"] = np.array([False, True, False, False, False])
        file["timeouts"] = np.array([False, False, False, True, False])
        file["infos/action_log_probs"] = np.log([0.1, 0.2, 0.3, 0.4, 0.5])
    declared = tmp_path / "declared.toml"
    declared.write_text(
        '[action]\nkind = "continuous"\nlow = [-1]\nhigh = [1]\n[episode]\nend = "column"\n[reward]\ntext = "points"\n'
    )
    log = read(tmp_path / "log.hdf5", declared)
    assert log.starts.tolist() == [0, 2, 3]  # the cut episode loses its last row; the one after it had no other
    assert log.observations[:, 0].tolist() == [0, 2, 2, 4, 6]
    assert np.allclose(log.behaviour, [0.1, 0.2, 0.3])
    assert log.truncated.tolist() == [False, False, True]


def test_what_follows_an_episode_is_filled_and_masked_too(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file["observations"] = np.array([[1, 2], [3, np.nan]])
        file["next_observations"] = np.array([[3, np.nan], [np.nan, 5]])
        file["actions"] = np.array([0, 1])
        file["rewards"] = np.arange(2.0)
        file["terminals"] = np.zeros(2)
    declared = tmp_path / "declared.toml"
    declared.write_text(
        '[action]\nkind = "discrete"\ncounts = [2]\n[episode]\nend = "column"\n[reward]\ntext = "points"\n'
        '[missing]\npolicy = "mask"\n'
    )
    log = read(tmp_path / "log.hdf5", declared)
    assert log.observations.tolist() == [[1, 2, 1, 1], [3, 2, 1, 0], [3, 5, 0, 1]]
    assert log.truncated.tolist() == [False, True]


def test_a_schema_says_nothing_about_a_folder(tmp_path: Path) -> None:
    save(log_of("discrete"), tmp_path / "log")
    with pytest.raises(BadInput, match="log: a log folder declares itself; leave the schema"):
        native_of(tmp_path / "log", Path("x.toml"), tmp_path / "copy")


def test_a_folder_is_checked_and_copied(tmp_path: Path) -> None:
    log = log_of("discrete")
    save(log, tmp_path / "log", {"missing": {"o:x": 2}})
    to_native(tmp_path / "log", None, tmp_path / "copy")
    assert notes_of(tmp_path / "copy") == {"missing": {"o:x": 2}}
    assert np.array_equal(load(tmp_path / "copy").observations, log.observations)
