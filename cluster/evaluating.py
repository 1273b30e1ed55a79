"""Plays a checkpoint's policy and those it has to beat on one split, on actors or in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from refork.cluster.checkpoint import Checkpoint
from refork.cluster.collector import open_collector
from refork.cluster.evaluation import requests, spread_over_packages
from refork.cluster.judgement import Judgement, judge
from refork.cluster.tasks import TaskSource, task_source
from refork.cluster.training import build_trainer
from refork.envs.forkable import BadInput
from refork.envs.swe.tasks import Split
from refork.trainers.config import JobConfig
from refork.trainers.loop import Weights


class _Player(NamedTuple):
    name: str
    mode: str
    weights: Weights
    version: int
    baseline: str = ""


def evaluate_checkpoint(
    checkpoint: Checkpoint, job: JobConfig, split: Split, baselines: bool, say: Callable[[str], None]
) -> list[Judgement]:
    """Judgements of the trained policy, and with `baselines` of the untrained and the environment's own.

    `say` is told what is being played. Raises BadInput when the split has no tasks.
    """
    torch.set_num_threads(1)
    source = task_source(job.env)
    tasks = spread_over_packages(source.names(split), source.package, job.evaluate.tasks)
    if not tasks:
        raise BadInput(f"there are no {split} tasks; choose another --split or build more tasks")
    collector = open_collector(job)
    try:
        judgements = []
        for player in _players(checkpoint, job, source, baselines):
            say(f"playing {len(tasks)} {split} tasks: {player.name}, {player.mode}")
            asked = requests(tasks, job.seed, job.evaluate.attempts, player.mode == "greedy")
            groups = collector.collect(asked, player.weights, player.version, baseline=player.baseline, record=False)
            pass_k = job.evaluate.pass_k if player.mode == "sampled" else ()
            judgements.append(judge(player.name, player.mode, groups, source.package, pass_k))
        return judgements
    finally:
        collector.close()
        source.close()


def _players(checkpoint: Checkpoint, job: JobConfig, source: TaskSource, baselines: bool) -> Iterator[_Player]:
    trainer = build_trainer(job, source)
    untrained = trainer.weights()
    trainer.load_state_dict(checkpoint.state["trainer"])
    for mode in ("sampled", "greedy"):
        yield _Player("trained", mode, trainer.weights(), 1)
    if not baselines:
        return
    for mode in ("sampled", "greedy"):
        yield _Player("untrained", mode, untrained, 0)
    for name, baseline in source.baselines().items():
        yield _Player(name, baseline.mode, untrained, 0, name)
