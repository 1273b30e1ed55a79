"""A log for RLlib's offline algorithms: the training part, written in RLlib's own column format."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.data import DataContext
from refork.cluster.rllib_policy import state_vectors
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, ObservationSpec
from refork.replay.formats.kinds import write_as
from refork.replay.transitions import Transitions

FILE = "log.parquet"


def with_log(config: Any, source: Any, folder: Path) -> Any:
    """`config` reading the training part of the log, which is written into `folder` unless it is there."""
    path = folder / FILE
    log = as_vectors(source.log.subset(source.splits["train"]))
    if not path.exists():
        partial = folder / f"partial-{FILE}"
        partial.unlink(missing_ok=True)
        write_as(log, partial, "rllib")
        partial.rename(path)
    quiet_readers()
    seen = log.spec.observation.size
    return config.environment(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (seen,), np.float32), action_space=_space(log.spec.action)
    ).offline_data(input_=[str(path)], map_batches_kwargs={"concurrency": 1, "num_cpus": 1})


def quiet_readers() -> None:
    """Ray Data tells of its progress on stderr, where ours is."""
    DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)


def check_log(log: Transitions) -> None:
    """Raises BadInput for a log that RLlib's offline algorithms cannot read."""
    spec = log.spec
    if spec.observation.per_agent or (spec.action.kind == "continuous" and spec.action.agents > 1):
        raise BadInput(f"trainer.kind rllib: a log of {spec.action.agents} agents cannot be read; choose cfcql or omar")


def as_vectors(log: Transitions) -> Transitions:
    """Numbers of states become what is known of them."""
    if log.spec.observation.kind == "vector":
        return log
    seen = state_vectors(log)
    spec = replace(log.spec, observation=ObservationSpec("vector", seen.shape[1]))
    return replace(log, spec=spec, observations=seen[log.observations], state_features=None)


def _space(action: ActionSpec) -> gym.spaces.Space[Any]:
    if action.kind == "continuous":
        return gym.spaces.Box(np.array(action.low, np.float32), np.array(action.high, np.float32))
    return gym.spaces.Discrete(action.sizes[0]) if action.agents == 1 else gym.spaces.MultiDiscrete(list(action.sizes))
