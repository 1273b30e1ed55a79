"""Builds the trainer a job asks for."""

from __future__ import annotations

import importlib
from typing import Any

from refork.agents.registry import make_network
from refork.replay.seeding import generator
from refork.trainers.config import AGENTS, JobConfig
from refork.trainers.loop import Trainer


def make_trainer(job: JobConfig, feature_names: Any) -> Trainer:
    """The trainer of `job.trainer.kind` around a fresh network for observations with these features.

    `feature_names`: as `make_network` takes them. Raises ValueError for an agent that the trainer cannot train, or
    options that the agent does not take.
    """
    fitting = AGENTS[job.trainer.learns_from]
    if job.agent.kind != fitting:
        raise ValueError(f"agent.kind {job.agent.kind!r}: trainer {job.trainer.kind} trains {fitting}")
    seed = int(generator(job.seed, "network").integers(2**31))
    network = make_network(job.agent.kind, feature_names, job.agent.options, seed)
    module = importlib.import_module(f"refork.trainers.{job.trainer.kind}.trainer")
    trainer: Trainer = module.Trainer(job.trainer, network, job.seed)
    return trainer
