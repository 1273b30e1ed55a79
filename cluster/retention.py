"""Which checkpoints of a run are kept: the last N, the best by a validation metric, and every K-th for ever."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from refork.cluster.checkpoint_folder import step_of
from refork.cluster.tracking import read_metrics
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig

log = logging.getLogger("refork.training")

_TOLD: set[tuple[Path, str]] = set()
"""Metrics files and names that were warned of."""
JUDGED_BY = ("validation/resolved", "validation/fraction", "validation/fqe")
"""What tells the best checkpoint of tasks, games and logs; more is better."""


@dataclass(frozen=True)
class Retention:
    """The rule. It works on names, so that it holds on the disk and in a storage alike."""

    last: int = 2
    every: int = 0
    """Those whose step is a multiple are kept for ever; 0: none."""
    best: int = 0
    """0 or 1."""
    best_of: str = ""
    """Metric, more is better; empty: the first of JUDGED_BY that the run has."""
    metrics: Path | None = None
    """The run's `metrics.jsonl`, read when `best` asks for it."""

    def kept(self, names: Sequence[str]) -> set[str]:
        """Of committed checkpoints, oldest first."""
        return {*names[-self.last :], *self.lasting(names)}

    def lasting(self, names: Sequence[str]) -> set[str]:
        """What stays although newer ones come: every K-th and the best."""
        lasting = {name for name in names if self.every and step_of(name) % self.every == 0}
        return lasting | self._best(names)

    def given_up(self, names: Sequence[str]) -> list[str]:
        """What a disk that fills up may take before its time, oldest first; never the newest."""
        lasting = self.lasting(names)
        return [name for name in names[:-1] if name not in lasting]

    def _best(self, names: Sequence[str]) -> set[str]:
        if not self.best or self.metrics is None:
            return set()
        rows = read_metrics(self.metrics)
        values = judged(rows, self.best_of)
        if self.best_of and not values:
            _tell_unknown(self.best_of, rows, self.metrics)
        found = [(values[step_of(name)], -at, name) for at, name in enumerate(names) if step_of(name) in values]
        return {max(found)[2]} if found else set()


def judged(rows: Sequence[Mapping[str, Any]], metric: str = "") -> dict[int, float]:
    """What each step was judged at; empty without evaluations."""
    for name in (metric,) if metric else JUDGED_BY:
        if values := {row["step"]: row[name] for row in rows if row.get(name) is not None}:
            return values
    return {}


def _tell_unknown(metric: str, rows: Sequence[Mapping[str, Any]], metrics: Path) -> None:
    """Once for a run: there was an evaluation, and nothing of that name."""
    names = sorted({name for row in rows for name in row} - {"step"})
    validated = [name for name in names if name.startswith("validation/")]
    if not validated or (metrics, metric) in _TOLD:
        return
    _TOLD.add((metrics, metric))
    near = get_close_matches(metric, names, 3) or validated
    log.warning(
        "checkpoint.best_of: no metric %r was logged, so no checkpoint is kept as the best; nearest: %s; to change it "
        "go on with --resume --checkpoint.best_of NAME",
        metric,
        ", ".join(near),
    )


def retention_of(job: JobConfig, metrics: Path) -> Retention:
    """The rule of a job."""
    wanted = job.checkpoint
    return Retention(wanted.keep, wanted.keep_every, wanted.keep_best, wanted.best_of, metrics)


def check_retention(job: JobConfig) -> None:
    """Raises BadInput where no checkpoint could ever be the best: none is both evaluated and saved."""
    saved, judged_every = job.checkpoint.every, job.evaluate.every
    if not job.checkpoint.keep_best:
        if job.checkpoint.best_of:
            raise BadInput("checkpoint.best_of: says by what the best is told: add checkpoint.keep_best = 1")
        return
    if not judged_every:
        raise BadInput("checkpoint.keep_best: nothing tells the best: set evaluate.every")
    if (first := math.lcm(saved, judged_every)) > job.trainer.updates and job.trainer.updates % judged_every:
        raise BadInput(
            f"checkpoint.keep_best: saved every {saved} and judged every {judged_every} updates, none is both before "
            f"update {first}: make evaluate.every a multiple of checkpoint.every"
        )
