"""The part of a log that worlds are fitted to and judged on, as the worlds see it."""

from __future__ import annotations

import numpy as np
import torch
from refork.agents.q_networks import LogShape
from refork.agents.world_outcomes import Outcomes
from refork.agents.worlds import Seen
from refork.envs.forkable import BadInput
from refork.replay.seeding import generator
from refork.replay.transitions import LoggedExperience
from refork.trainers.log_batch import LogTensors
from torch import Tensor


class Episodes:
    """Episodes of the training part, split by patient into those fitted and those held out."""

    def __init__(self, experience: LoggedExperience, shape: LogShape, tensors: LogTensors, held_out: float) -> None:
        """Raises BadInput when all are of one patient."""
        self.log, self.tensors, self._shape = experience.log, tensors, shape
        self._outcomes = Outcomes.of(shape)
        self.transitions = experience.transitions
        self.fitted, self.held = _split(experience, held_out)
        rewards = np.asarray(self.log.rewards)[self.transitions].astype(np.float64)
        self.reward_mean, scale = float(rewards.mean()), float(rewards.std())
        self.reward_scale = scale if scale > 1e-6 else 1.0

    def windows(self, length: int) -> np.ndarray:
        """(n, 2) int64: first transition and number of steps of pieces of the fitted episodes, at most `length`."""
        pieces = []
        for episode in self.fitted:
            start, end = self.log.starts[episode], self.log.starts[episode + 1]
            at = np.arange(start, end, length)
            pieces.append(np.stack([at, np.minimum(at + length, end) - at], 1))
        return np.concatenate(pieces).astype(np.int64)

    def seen(self, transitions: Tensor, worlds: int) -> Seen:
        """Transitions (S, B) int64, each seed's as its `worlds` members see them."""
        batch = self.tensors.batch(transitions)
        outcomes, scale = self._outcomes, torch.from_numpy(self._shape.scale)
        if self._shape.state_features is None:
            change = (batch.next_observations - batch.observations) / scale if len(outcomes.numbers) else None
        else:
            table = torch.from_numpy(self._shape.state_features) / scale
            change = (table[batch.next_observations] - table[batch.observations])[..., outcomes.numbers]
        empty = batch.rewards[..., None][..., :0]
        found = {
            "observations": batch.observations,
            "actions": batch.actions[..., 0],
            "next_observations": batch.next_observations,
            "change": empty if change is None else change,
            "levels": outcomes.table[batch.next_observations] if outcomes.levels else empty.long(),
            "rewards": (batch.rewards - self.reward_mean) / self.reward_scale,
            "terminated": self.tensors.terminated[transitions],
        }
        allowed = None if batch.allowed is None else batch.allowed[:, :, 0].repeat_interleave(worlds, 0)
        return Seen(**{name: part.repeat_interleave(worlds, 0) for name, part in found.items()}, allowed=allowed)


def _split(experience: LoggedExperience, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Episodes to fit and to hold out; the same for every seed, so that a seed's worlds do not depend on others."""
    log = experience.log
    episodes = np.unique(log.episode[experience.transitions])
    patients = np.unique(np.asarray(log.patients)[episodes])
    if len(patients) < 2:
        raise BadInput(
            f"trainer.kind: delphic judges its worlds on patients apart; {experience.name} has {len(patients)}: "
            "add patients, or use cql"
        )
    generator(0, "worlds/held_out").shuffle(patients)
    kept = min(max(1, round(share * len(patients))), len(patients) - 1)
    held = np.isin(np.asarray(log.patients)[episodes], patients[:kept])
    return episodes[~held], episodes[held]
