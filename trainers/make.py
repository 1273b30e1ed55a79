"""Builds the trainer a job asks for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from refork.agents.registry import make_network
from refork.replay.seeding import generator
from refork.trainers.config import JobConfig
from refork.trainers.loop import Trainer


def make_trainer(job: JobConfig, feature_names: Sequence[str]) -> Trainer:
    """The trainer of `job.trainer.kind` around a fresh network for observations with these features.

    Raises ValueError for options that the agent does not take.
    """
    seed = int(generator(job.seed, "network").integers(2**31))
    network = make_network(job.agent.kind, feature_names, job.agent.options, seed)
    module = importlib.import_module(f"refork.trainers.{job.trainer.kind}.trainer")
    trainer: Trainer = module.Trainer(job.trainer, network, job.seed)
    return trainer
