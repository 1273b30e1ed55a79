"""What the studies of learning from logs share: options, training as a user's job does, intervals, the report."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.agents.log_policy import LogPolicy, MemberPolicy
from refork.cluster.log_source import LogSource
from refork.replay.transitions import LoggedExperience
from refork.trainers.config import JobConfig
from refork.trainers.fqe_stack import NetworkSettings
from refork.trainers.make import make_trainer
from refork.trainers.selection import select
from refork.trainers.stats import bootstrap, iqm

os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the processes of a study: one core each

Settings = Mapping[str, Any]
"""What is laid over the fields of a trainer."""


def trained(job: JobConfig, source: LogSource) -> list[MemberPolicy]:
    """The policies of all stacked seeds of a job, learnt from the training part of its log."""
    torch.set_num_threads(1)
    trainer = make_trainer(job, source.shape)
    part = LoggedExperience("train", source.log, source.transitions("train"), 0.0)
    for update in range(job.trainer.updates):
        trainer.update(update, [part])
    seeds: int = job.trainer.seeds  # type: ignore[attr-defined]
    policy = LogPolicy(source.spec, trainer.weights(), seeds)
    return [policy.member(s) for s in range(seeds)]


def choice(
    jobs: Sequence[JobConfig],
    tried: Sequence[Settings],
    network: NetworkSettings | None = None,
    source: LogSource | None = None,
) -> dict[str, Any]:
    """Of the settings `tried`, a job each on one log, that of the greatest value by FQE, cross-fitted by patient.

    Nothing but the log is looked at. `network`: of the FQE, where the log is not one of states; `source`: the log of
    the jobs, where it is made already.
    """
    begun, source = time.process_time(), source or LogSource(jobs[0].env)
    candidates = {str(k): trained(job, source) for k, job in enumerate(jobs)}
    training, validation = (source.log.subset(source.splits[part]) for part in ("train", "validation"))
    gamma: float = jobs[0].trainer.gamma  # type: ignore[attr-defined]
    best = select(candidates, validation, training=training, gamma=gamma, network=network)
    scores = {name: asdict(score) for name, score in best.scores.items()}
    spent = time.process_time() - begun
    return {"settings": tried[int(best.name)], "rule": best.rule, "scores": scores, "cpu_s": spent}


def interval(values: Sequence[float] | np.ndarray) -> list[float]:
    """[low, interquartile mean, high]: 95 % bootstrap."""
    found = bootstrap(values, statistic=iqm)
    return [found.low, found.estimate, found.high]


def parser(doc: str | None, repeated: str, quick: str, parallel: bool = True) -> argparse.ArgumentParser:
    """The options that every study has; `repeated`: what its intervals are over ("seeds", "logs")."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help=quick)
    made.add_argument(f"--{repeated}", type=int, default=0, help="default: 5, quick 2")
    made.add_argument("--done", action="store_true", help="report on what DIR holds, and run nothing")
    if parallel:
        made.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    made.add_argument("--work", type=Path, default=None, help="folder for what is done; default: a temporary one")
    made.add_argument("--out", type=Path, default=None, help="file for the result, and for a picture beside it")
    return made


def parsed(asked: argparse.ArgumentParser, repeated: str) -> argparse.Namespace:
    """With the number of repetitions filled in, and the folder of what is done made: one each for quick and full."""
    options = asked.parse_args()
    setattr(options, repeated, getattr(options, repeated) or (2 if options.quick else 5))
    options.work = options.work or Path(tempfile.mkdtemp(prefix="study-"))
    options.work = options.work / ("quick" if options.quick else "full")
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def report(result: Mapping[str, Any], out: Path | None, draw: Callable[[Any, Path], None] | None = None) -> None:
    """To the file and its picture, and as the last line printed."""
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n")
        if draw is not None:
            draw(result, out.with_suffix(".png"))
    print(json.dumps(result))
