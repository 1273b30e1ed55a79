"""RLlib's own reader takes what is written here, and what its own recorder makes is read here; no cluster runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refork.replay.formats.kinds import kind_of, write_as

from tests.replay.formats.files import notes, read
from tests.trainers.logs import log_for

pytestmark = pytest.mark.ray

DECLARED = '[action]\nkind = "discrete"\ncounts = [3]\n[episode]\nend = "column"\n[reward]\ntext = "points"\n'


def test_rllib_reads_what_is_written(tmp_path: Path) -> None:
    from pyarrow import parquet
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.offline.offline_prelearner import OfflinePreLearner

    log = log_for("discrete", episodes=3)
    write_as(log, tmp_path / "log.parquet", "rllib")
    table = parquet.read_table(tmp_path / "log.parquet")
    reader = object.__new__(OfflinePreLearner)  # its maker wants a network, which reading does not use
    reader.config = BCConfig()
    batch = {name: np.array(table.column(name).to_pylist()) for name in table.schema.names}
    found = reader._map_to_episodes(batch)["episodes"]
    assert [e.id_ for e in found] == [str(e) for e in log.episode]
    assert [e.get_actions(0) for e in found] == log.actions[:, 0].tolist()
    rows = log.rows(np.arange(len(log)))
    assert np.allclose([e.get_observations(1) for e in found], log.observations[rows + 1])
    assert [e.is_terminated for e in found] == log.terminated.tolist()
    assert [e.is_truncated for e in found] == log.truncated.tolist()


def test_what_rllib_records_is_read(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet
    from ray.data.extensions import ArrowTensorArray
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode
    from ray.rllib.offline.offline_env_runner import OfflineSingleAgentEnvRunner

    seen = np.arange(12, dtype=np.float32).reshape(6, 2)
    logp = np.log([0.5, 0.25, 0.125])
    episodes = [
        SingleAgentEpisode(
            id_=name,
            observations=list(seen[first : first + 3]),
            actions=[0, 2],
            rewards=[1.0, 2.0],
            terminated=name == "a",
            extra_model_outputs={"action_logp": list(logp[k : k + 2])},
            len_lookback_buffer=0,
        )
        for k, (name, first) in enumerate((("a", 0), ("b", 3)))
    ]
    recorder = object.__new__(OfflineSingleAgentEnvRunner)  # only its mapping of episodes to rows is of interest
    recorder._samples, recorder.output_compress_columns = [], []
    recorder._map_episodes_to_data(episodes)
    rows = recorder._samples
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name in ("obs", "new_obs"):  # as Ray Data keeps arrays
        columns[name] = ArrowTensorArray.from_numpy(np.stack(columns[name]))
    (tmp_path / "run-000001-00001").mkdir()
    for k in range(2):
        part = {name: values[2 * k : 2 * k + 2] for name, values in columns.items()}
        parquet.write_table(pyarrow.table(part), tmp_path / "run-000001-00001" / f"x_00000{k}-0.parquet")
    (tmp_path / "declared.toml").write_text(DECLARED)
    assert kind_of(tmp_path) == "rllib"
    log = read(tmp_path, tmp_path / "declared.toml")
    assert np.array_equal(log.observations, seen)
    assert log.actions[:, 0].tolist() == [0, 2, 0, 2]
    assert log.terminated.tolist() == [False, True, False, False]
    assert log.truncated.tolist() == [False, False, False, True]
    assert np.allclose(log.behaviour, [0.5, 0.25, 0.25, 0.125])
    assert log.patient_names == ("a", "b")
    assert notes(tmp_path)["unmarked_ends"] == 1
