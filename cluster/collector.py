"""Collects experience in this process, and says what every collector does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from refork.cluster.rollout import Rollout, RolloutSpec
from refork.envs.forkable import InfraFailure
from refork.replay.counterfactual import ForkConfig, GroupRequest
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import JobConfig

Sink = Callable[[TaskExperience], None]
"""Gets every group as soon as it has been played, before the batch is complete: the progress display."""


class GroupCollector(Protocol):
    """What the loop (`trainers/loop.py: Collector`) and evaluation ask for."""

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        forks: ForkConfig | None = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[TaskExperience]:
        """One experience per request, in their order.

        `baseline`: play that policy of the environment instead of the weights. `record`: hand groups to the sinks.
        """

    def close(self) -> None:
        """Leave nothing behind."""


class LocalCollector:
    """Plays groups one after the other in this process."""

    def __init__(self, spec: RolloutSpec, sinks: Sequence[Sink] = ()) -> None:
        self._rollout, self._sinks = Rollout(spec), tuple(sinks)

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        forks: ForkConfig | None = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[TaskExperience]:
        played: list[TaskExperience] = []
        for request in requests:
            played.append(self._rollout.play(request, weights, version, forks, baseline))
            for sink in self._sinks if record else ():
                sink(played[-1])
        return played

    def close(self) -> None:
        self._rollout.close()


class RecordedCollector:
    """Writes what another collector collects to the run's store before handing it on."""

    def __init__(self, inner: GroupCollector, store: TrajectoryStore) -> None:
        self._inner, self._store = inner, store

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        forks: ForkConfig | None = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[TaskExperience]:
        """Raises InfraFailure when the store cannot be written."""
        played = self._inner.collect(requests, weights, version, forks, baseline, record)
        if record:
            try:
                self._store.write(version, played)
            except OSError as error:
                raise InfraFailure(f"{self._store.folder}: trajectories cannot be written: {error.strerror}") from error
        return played

    def close(self) -> None:
        self._inner.close()


def open_collector(job: JobConfig, sinks: Sequence[Sink] = ()) -> GroupCollector:
    """As `job.rollout` says: in this process, or Ray actors (Ray is imported only then)."""
    spec = RolloutSpec(job.env, job.agent.kind)
    if job.rollout.actors == 0:
        return LocalCollector(spec, sinks)
    from refork.cluster.actors import RayCollector

    return RayCollector(spec, job.rollout.actors, sinks)
