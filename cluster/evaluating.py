"""Plays a checkpoint's policy and those it has to beat on one split, on actors or in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from refork.cluster.checkpoint import Checkpoint
from refork.cluster.collector import open_collector
from refork.cluster.family import Contest, Family, Report, open_family
from refork.cluster.resources import need_of
from refork.cluster.rllib_judging import judging_job, saved_policies
from refork.cluster.training import build_trainer
from refork.envs.swe.tasks import Split
from refork.trainers.config import JobConfig
from refork.trainers.loop import Weights


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    job: JobConfig,
    split: Split,
    baselines: bool,
    say: Callable[[str], None],
    forks: int = 0,
    history: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Judge the trained policy, and with `baselines` the untrained and the environment's own.

    `say` is told what is being played; `history` are the metrics of its run. Raises BadInput when the split has no
    tasks.
    """
    torch.set_num_threads(1)
    with ExitStack() as stack:
        job = judging_job(job)
        family = open_family(job)
        stack.callback(family.close)
        untrained, trained = _policies(checkpoint, job, family)
        collector = open_collector(family.spec, need_of(job, learners=1), address=job.cluster.address)
        stack.callback(collector.close)
        return family.judge(
            Contest(split, baselines, forks, trained, untrained, history, collector, say, checkpoint.path)
        )


def _policies(checkpoint: Checkpoint, job: JobConfig, family: Family) -> tuple[Weights, Weights]:
    """Acting weights before any learning, and of the checkpoint."""
    if job.trainer.runs_in == "rllib":
        return saved_policies(checkpoint)
    trainer = build_trainer(job, family.feature_names)
    untrained = trainer.weights()
    trainer.load_state_dict(checkpoint.state["trainer"])
    return untrained, trainer.weights()
