"""Judges policies learnt from a log: what the simulator knows them to be worth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from refork.agents.log_policy import LogPolicy
from refork.cluster.family import Contest
from refork.cluster.log_source import LogSource
from refork.envs.log_spec import Act, Truth
from refork.trainers.config import JobConfig
from rich.table import Table


@dataclass(frozen=True)
class LogEvaluator:
    """Judges the policies in training, without touching any random stream of it."""

    source: LogSource
    seeds: int

    def evaluate(self, weights: Mapping[str, np.ndarray], version: int) -> dict[str, float]:
        """`true_value`: mean over seeds, where a simulator knows it."""
        simulator = self.source.simulator
        if simulator is None:
            return {}
        policy = LogPolicy(self.source.spec, weights, self.seeds)
        return {"true_value": float(np.mean([simulator.truth(policy.member(s)).value for s in range(self.seeds)]))}


@dataclass(frozen=True)
class Judged:
    """One policy."""

    name: str
    seed: int | None
    truth: Truth | None


@dataclass(frozen=True)
class LogReport:
    """What `refork evaluate` found."""

    judged: Sequence[Judged]

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.judged]

    def tables(self) -> list[Table]:
        table = Table("policy", "seed", "true value", title="Values")
        for row in self.judged:
            seed = "" if row.seed is None else str(row.seed)
            table.add_row(row.name, seed, "unknown" if row.truth is None else f"{row.truth.value:.5f}")
        return [table]

    def notes(self) -> list[str]:
        return []


def judge_log(source: LogSource, job: JobConfig, contest: Contest) -> LogReport:
    """Every trained seed; with `baselines` the policies of the simulator."""
    simulator = source.simulator
    judged = []
    for name, seed, act in _contestants(source, job, contest):
        contest.say(f"judging {name}")
        judged.append(Judged(name, seed, None if simulator is None else simulator.truth(act)))
    return LogReport(judged)


def _contestants(source: LogSource, job: JobConfig, contest: Contest) -> Iterator[tuple[str, int | None, Act]]:
    seeds: int = job.trainer.seeds  # type: ignore[attr-defined]
    trained = LogPolicy(source.spec, contest.trained, seeds)
    for seed in range(seeds):
        yield "trained", seed, trained.member(seed)
    if contest.baselines and source.simulator is not None:
        for name in source.simulator.behaviours:
            if (act := source.simulator.policy(name)) is not None:
                yield name, None, act
