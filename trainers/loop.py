"""collect -> update -> evaluate -> checkpoint, the same loop for every algorithm and every place it runs in.

What the loop needs from outer rooms is handed in through the protocols below; it imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from refork.replay.counterfactual import ForkConfig, GroupRequest
from refork.replay.trajectory import TaskExperience

Weights = Mapping[str, np.ndarray]
"""The acting network as float32 arrays by name: what goes to rollout actors, free of torch."""


class Collector(Protocol):
    """Plays groups, here or on actors."""

    def collect(
        self, requests: Sequence[GroupRequest], weights: Weights, version: int, forks: ForkConfig | None
    ) -> list[TaskExperience]:
        """One experience per request, in the order of the requests, whatever order they were played in.

        A group whose player was lost comes back as `lost_group(request, reason)`. Trajectories are in the store
        before this returns.
        """

    def close(self) -> None:
        """Leave nothing behind."""


class Tracker(Protocol):
    """Where metrics go. A failure to log warns and goes on."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row; `step` is the update it belongs to and never goes backwards."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on with the same record (W&B run id); JSON values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Checkpointer(Protocol):
    """Keeps committed states of the whole loop."""

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """`state`: nested dicts and lists of JSON values (integers of any size) and torch tensors, nothing else."""


class Evaluator(Protocol):
    """Judges the policy on tasks of its own, without touching any random stream of the training."""

    def evaluate(self, weights: Weights, version: int) -> Mapping[str, float]:
        """Metrics by name, e.g. `resolved`."""


class Trainer(Protocol):
    """One algorithm: turns experience into better weights. `trainers/ALGORITHM/trainer.py` holds one each."""

    def weights(self) -> Weights:
        """The current acting weights."""

    def fork_config(self) -> ForkConfig | None:
        """How the next groups are to be forked; None: not at all."""

    def update(self, update: int, experience: Sequence[TaskExperience]) -> dict[str, float]:
        """One update, number `update` of the run from 0; loss terms and diagnostics by name."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
