"""Trains and plays the variants of the coupling study."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.cluster.collector import open_collector
from refork.cluster.evaluation import requests
from refork.cluster.family import open_family
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_family import GameFamily
from refork.cluster.game_judgement import results
from refork.cluster.run_folder import create
from refork.cluster.tracking import read_metrics
from refork.cluster.training import Parts, Silent, prepare, train
from refork.replay.games import ImproveConfig, PlayConfig
from refork.scripts.job import read_job
from refork.trainers.config import JobConfig

Fractions = dict[str, float]
"""Fraction of the bound by task."""


@dataclass(frozen=True)
class Variant:
    """What is laid over the grid job, as the command line would."""

    name: str
    overrides: tuple[str, ...]
    forks: int = 0
    """Candidates tried by forking at every decision when it is judged; 0: none."""


def job_of(variant: Variant, seed: int, runs: Path, common: Sequence[str] = ()) -> JobConfig:
    """The grid job with `common` and the variant's own overrides."""
    return read_job("graph_grid", [*common, *variant.overrides, "--seed", str(seed), "--runs", str(runs)])


def trained(variant: Variant, seed: int, common: Sequence[str]) -> dict[str, Any]:
    """Train; `weights` as lists, seconds of CPU, and the rows of the metrics."""
    torch.set_num_threads(1)
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        parts: Parts = prepare(job_of(variant, seed, Path(folder), common))
        run = create(parts.job)
        totals = train(parts, run, Silent())
        rows = read_metrics(run.path / "metrics.jsonl")
    weights = {name: (str(a.dtype), list(a.shape), a.ravel().tolist()) for name, a in parts.trainer.weights().items()}
    return {"weights": weights, "cpu_s": time.process_time() - begun, "steps": totals["steps"], "rows": rows}


def weights_of(run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(flat, dtype).reshape(shape) for name, (dtype, shape, flat) in run["weights"].items()}


def played(
    weights: Mapping[str, np.ndarray],
    rule: str,
    split: str,
    forks: int,
    common: Sequence[str],
    tasks: Sequence[str] = (),
) -> Fractions:
    """The greedy policy, or the heuristic `rule`, on the games of a split (or `tasks`), cleared exactly."""
    torch.set_num_threads(1)
    job = read_job("graph_grid", [*common, "--env.options.clearing", "exact"])
    family = open_family(job)
    assert isinstance(family, GameFamily)
    collector, bounds = open_collector(family.spec), BoundCache()
    how = PlayConfig(improve=ImproveConfig(forks)) if forks else None
    asked = requests(list(tasks) or family.names(split), 0, 1, not rule)  # type: ignore[arg-type]
    games = collector.collect(asked, weights, 1, how, rule, record=False)
    collector.close()
    family.close()
    return {r.task: r.fraction for batch in games for r in results(batch, family.source, bounds)}
