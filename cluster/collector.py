"""Collects experience in this process, and says what every collector does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from refork.cluster.rollout import Rollout, RolloutSpec
from refork.replay.counterfactual import ForkConfig, GroupRequest
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import JobConfig

Sink = Callable[[TaskExperience], None]
"""Gets every group as soon as it has been played, before the batch is complete: the store, the progress display."""


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


def open_collector(job: JobConfig, sinks: Sequence[Sink] = ()) -> GroupCollector:
    """As `job.rollout` says: in this process, or Ray actors (Ray is imported only then)."""
    spec = RolloutSpec(job.env, job.agent.kind)
    if job.rollout.actors == 0:
        return LocalCollector(spec, sinks)
    from refork.cluster.actors import RayCollector

    return RayCollector(spec, job.rollout.actors, sinks)
