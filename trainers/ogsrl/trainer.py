"""Guarded model-based learning from logs."""

from __future__ import annotations

from refork.trainers.offline import by_actions
from refork.trainers.ogsrl.continuous import ContinuousTrainer
from refork.trainers.ogsrl.discrete import DiscreteTrainer

Trainer = by_actions(DiscreteTrainer, ContinuousTrainer)
