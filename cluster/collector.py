"""Collects experience in this process: the plain collector, and what both collectors share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from refork.cluster.rollout import Rollout, RolloutSpec
from refork.replay.counterfactual import ForkConfig, GroupRequest
from refork.replay.trajectory import TaskExperience

Sink = Callable[[TaskExperience], None]
"""Gets every group as soon as it has been played, before the batch is complete: the store, the progress display."""


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
    ) -> list[TaskExperience]:
        """One experience per request, in their order."""
        played: list[TaskExperience] = []
        for request in requests:
            played.append(self._rollout.play(request, weights, version, forks, baseline))
            for sink in self._sinks:
                sink(played[-1])
        return played

    def close(self) -> None:
        self._rollout.close()
