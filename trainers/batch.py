"""Decisions that teach something, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from refork.replay.trajectory import Decision, TaskExperience
from refork.trainers.advantages import Credit
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """n decisions to imitate or of an advantage other than 0; menus of different lengths are padded, masked."""

    features: Tensor
    """(n, actions, features), float32."""
    mask: Tensor
    """(n, actions), bool."""
    actions: Tensor
    """(n,), int64."""
    log_probs: Tensor
    """(n,), float32, under the policy that acted."""
    advantages: Tensor
    """(n,), float32."""
    rollouts: Tensor
    """(n,), int64: number of the trajectory in the batch."""
    branch: Tensor
    """(n,), bool: decided in a branch."""
    target: Tensor
    """(n,), bool: to imitate."""

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: Tensor) -> Batch:
        """Those rows."""
        return Batch(*(getattr(self, f.name)[rows] for f in fields(self)))


def make_batch(experience: Sequence[TaskExperience], credits: Sequence[Credit]) -> Batch | None:
    """The decisions of `experience` with their advantages; None when none is to be imitated or has one other than 0."""
    decisions: list[Decision] = []
    rows: list[tuple[float, int, bool, bool]] = []
    number = 0
    for group, credit in zip(experience, credits, strict=True):
        for trajectory in group.trajectories:
            values = credit.values.get(trajectory.key, np.zeros(0))
            targets = credit.targets.get(trajectory.key, np.zeros(len(values), np.bool_))
            for decision, value, target in zip(trajectory.decisions, values, targets, strict=False):
                if value != 0.0 or target:
                    decisions.append(decision)
                    rows.append((float(value), number, trajectory.origin is not None, bool(target)))
            number += 1
    if not decisions:
        return None
    features, mask = _stack([d.observation for d in decisions])
    advantages, rollouts, branch, target = zip(*rows, strict=True)
    return Batch(
        features,
        mask,
        torch.tensor([d.action for d in decisions]),
        torch.tensor([d.log_prob for d in decisions], dtype=torch.float32),
        torch.tensor(advantages, dtype=torch.float32),
        torch.tensor(rollouts),
        torch.tensor(branch),
        torch.tensor(target),
    )


def _stack(observations: Sequence[dict[str, np.ndarray]]) -> tuple[Tensor, Tensor]:
    longest = max(len(o["mask"]) for o in observations)
    features = np.zeros((len(observations), longest, observations[0]["features"].shape[1]), np.float32)
    mask = np.zeros((len(observations), longest), np.bool_)
    for i, observation in enumerate(observations):
        count = len(observation["mask"])
        features[i, :count], mask[i, :count] = observation["features"], observation["mask"]
    return torch.from_numpy(features), torch.from_numpy(mask)
