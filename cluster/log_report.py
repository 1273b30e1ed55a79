"""What `refork evaluate` says of policies on a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.log_judging import Part
from refork.cluster.log_plots import draw
from refork.cluster.log_practice import Practice
from refork.cluster.log_ranking import ranking_lines, rankings
from refork.cluster.log_summary import failures, summary, undefined
from refork.cluster.log_tables import log_tables
from refork.envs.log_spec import Truth
from refork.replay.ope.estimate import Estimate
from refork.trainers import fqe
from rich.table import Table


@dataclass(frozen=True)
class Judged:
    """One policy, or the trained ones of all seeds together (seed None)."""

    name: str
    seed: int | None
    truth: Truth | None
    estimates: tuple[Estimate, ...]
    models: Mapping[str, fqe.FQE]
    """By method; () of several policies together."""
    practice: Practice | None
    violations: Mapping[str, Estimate]
    """Steps an episode that lead to a violation of each limit."""
    true_violations: Mapping[str, Truth]
    """The same in truth, where a simulator knows it."""
    by_seed: Mapping[str, tuple[float, ...]]
    """Of several together: each seed's value by estimator; the spread of training, apart from the intervals."""

    @property
    def label(self) -> str:
        return self.name if self.seed is None else f"{self.name} {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name,
            "seed": self.seed,
            "truth": None if self.truth is None else asdict(self.truth),
            "estimates": [estimate.to_json() for estimate in self.estimates],
            "fqe": {method: model_json(found) for method, found in self.models.items()},
            "practice": None if self.practice is None else self.practice.to_json(),
            "violating_steps": {limit: found.to_json() for limit, found in self.violations.items()},
            "true_violating_steps": {limit: asdict(found) for limit, found in self.true_violations.items()},
            "by_seed": {name: list(values) for name, values in self.by_seed.items()},
        }


def model_json(found: fqe.FQE) -> dict[str, Any]:
    """Its diagnostics."""
    return {
        "value": found.value,
        "converged": found.converged,
        "curves": [[list(point) for point in curve] for curve in found.curves],
        "td_rms": found.td_rms,
        "td_mean": found.td_mean,
        "held_out": found.held_out,
        "range": [found.lowest, found.highest],
        "bounds": list(found.bounds),
        "in_bounds": found.in_bounds,
    }


@dataclass(frozen=True)
class LogReport:
    """One row a policy."""

    judged: Sequence[Judged]
    part: Part
    split: str

    def about(self) -> dict[str, Any]:
        """What the numbers are of: reward, discount, horizon, censoring, who acted."""
        own, behaviour = self.part.log, self.part.behaviour
        return {
            "reward": own.spec.reward,
            "gamma": own.spec.gamma,
            "horizon": own.spec.horizon,
            "step": own.spec.step,
            "episodes": own.episodes,
            "patients": len(np.unique(own.patients)),
            "transitions": len(own),
            "cut_episodes": int((~np.asarray(own.terminated[own.starts[1:] - 1])).sum()),
            "returns": [float(value) for value in np.quantile(own.returns(own.spec.gamma), [0, 0.5, 1])],
            "behaviour": {
                "probabilities": self.part.source,
                "recorded_share": self.part.known,
                "model": behaviour.kind,
                "nll": behaviour.nll,
                "calibration": [asdict(found) for found in behaviour.calibration],
            },
            "notes": list(self.part.notes),
            "summary": self.summary(),
            "rankings": rankings(self),
        }

    def to_json(self) -> list[dict[str, Any]]:
        return [row.to_json() for row in self.judged]

    def summary(self) -> list[str]:
        """The trained policy against who acted, what the log supports, whether limits are kept: a line each."""
        return summary(self)

    def tables(self) -> list[Table]:
        return log_tables(self)

    def notes(self) -> list[str]:
        """What was refused, and how to read what is there."""
        return [*self.part.notes, *undefined(self), *failures(self), *ranking_lines(self), *reading(self)]

    def plots(self, folder: Path) -> list[Path]:
        return draw(self, folder)


def reading(report: LogReport) -> list[str]:
    """How the numbers are meant."""
    about = report.about()
    cut = about["cut_episodes"]
    horizon = f"within {about['horizon']} steps" if about["horizon"] else "to the end of the episode"
    lines = [
        f"value: expected return ({about['reward']}), gamma {about['gamma']:g}, {horizon}, from the start of "
        f"{about['episodes']} {report.split} episodes of {about['patients']} patients; one step is {about['step']}",
        "every value is estimated under the model named beside it, and shows nothing about patients by itself; "
        "only a simulator's own value is known",
        "unsupported (u): effective sample size under max(30, 1 % of n), or weights that do not average to 1. "
        "by model (m): the log alone does not support the policy, the number is the model's extrapolation. "
        "Neither is ranked beside what is supported",
        "intervals of FQE are over patients: by tables the model is refitted to them, by others it is taken as given; "
        "none has in it what a model gets wrong where the log shows nothing",
    ]
    if cut:
        lines.append(
            f"censoring: {cut} of {about['episodes']} episodes were cut; "
            + ("at the horizon, which the value ends at too" if about["horizon"] else "weights leave out what followed")
        )
    return lines
