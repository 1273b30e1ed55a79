"""The part of a log that worlds are fitted to and judged on, as the worlds see it."""

from __future__ import annotations

import numpy as np
import torch
from refork.agents.q_networks import LogShape
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
        reward = (batch.rewards - self.reward_mean) / self.reward_scale
        states, features = None, self._shape.state_features
        if self.log.spec.observation.kind == "vector":
            change = (batch.next_observations - batch.observations) / torch.from_numpy(self._shape.scale)
        elif features is not None:
            table = torch.from_numpy(features / self._shape.scale)
            change = table[batch.next_observations] - table[batch.observations]
        else:
            change, states = reward[..., :0].new_zeros(*reward.shape, 0), batch.next_observations
        allowed = None if batch.allowed is None else batch.allowed[:, :, 0]
        return Seen(
            observations=batch.observations.repeat_interleave(worlds, 0),
            actions=batch.actions[..., 0].repeat_interleave(worlds, 0),
            following=torch.cat([change, reward[..., None]], -1).repeat_interleave(worlds, 0),
            states=None if states is None else states.repeat_interleave(worlds, 0),
            terminated=self.tensors.terminated[transitions].repeat_interleave(worlds, 0),
            allowed=None if allowed is None else allowed.repeat_interleave(worlds, 0),
        )


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
