"""Guarded model-based learning from logs."""

from __future__ import annotations

from refork.agents.q_networks import LogNetworks
from refork.trainers.offline import OfflineTrainer
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.continuous import ContinuousTrainer
from refork.trainers.ogsrl.discrete import DiscreteTrainer


def Trainer(config: AlgorithmConfig, networks: LogNetworks, seed: int) -> OfflineTrainer[AlgorithmConfig]:
    """As the log's actions are."""
    made = DiscreteTrainer if networks.spec.action.kind == "discrete" else ContinuousTrainer
    return made(config, networks, seed)
