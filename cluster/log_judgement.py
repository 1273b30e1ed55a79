"""Judges policies learnt from a log: estimates with what they rest on, and the truth where a simulator knows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.agents.log_policy import LogPolicy
from refork.cluster.family import Contest
from refork.cluster.log_contestants import log_contestants
from refork.cluster.log_judging import Part, judge_policies, part_of
from refork.cluster.log_plots import draw
from refork.cluster.log_practice import Practice
from refork.cluster.log_source import LogSource
from refork.cluster.log_tables import log_tables, rankings
from refork.envs.log_spec import Truth
from refork.replay.ope.estimate import Estimate, combined, observed_return
from refork.trainers import fqe
from refork.trainers.config import JobConfig
from rich.table import Table

log = logging.getLogger("refork.evaluate")


@dataclass(frozen=True)
class LogEvaluator:
    """Judges the policies in training, without touching any random stream of it. What fails is left out, and said."""

    source: LogSource
    seeds: int

    def evaluate(self, weights: Mapping[str, np.ndarray], version: int) -> dict[str, float]:
        """`true_value`: mean over seeds, where a simulator knows it. `fqe`: estimated on the validation part."""
        policy = LogPolicy(self.source.spec, weights, self.seeds)
        acts = [policy.member(seed) for seed in range(self.seeds)]
        found: dict[str, float] = {}
        if (simulator := self.source.simulator) is not None:
            found["true_value"] = float(np.mean([simulator.truth(act).value for act in acts]))
        episodes = self.source.splits["validation"]
        if not len(episodes):
            return found
        try:
            own = self.source.log.subset(episodes)
            method = next((m for m in ("table", "linear") if m not in fqe.undefined(own)), "network")
            values = [f.value for f in fqe.evaluate(own, acts, own.spec.gamma, method=method, folds=1)]
            found["fqe"], found["fqe_seed_spread"] = float(np.mean(values)), float(np.std(values))
        except Exception as error:
            log.warning("update %d: FQE failed, training goes on: %s", version, error)
        return found


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
    violations: Mapping[str, float]
    by_seed: Mapping[str, tuple[float, ...]]
    """Of several together: each seed's value by estimator; the spread of training, apart from the intervals."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seed": self.seed,
            "truth": None if self.truth is None else asdict(self.truth),
            "estimates": [estimate.to_json() for estimate in self.estimates],
            "fqe": {method: model_json(found) for method, found in self.models.items()},
            "practice": None if self.practice is None else self.practice.to_json(),
            "violating_steps": dict(self.violations),
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
    """What `refork evaluate` found."""

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
        }

    def to_json(self) -> list[dict[str, Any]]:
        return [row.to_json() for row in self.judged]

    def tables(self) -> list[Table]:
        return log_tables(self)

    def notes(self) -> list[str]:
        """What was refused, and how to read what is there."""
        return [*self.part.notes, *rankings(self), *reading(self)]

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
        "unsupported: effective sample size under max(30, 1 % of n), or weights that do not average to 1; not ranked. "
        "by model: the log alone does not support the policy, the number is the model's extrapolation",
        "intervals of FQE are over patients with the model given: they leave the model's own error out",
    ]
    if cut:
        lines.append(
            f"censoring: {cut} of {about['episodes']} episodes were cut; "
            + ("at the horizon, which the value ends at too" if about["horizon"] else "weights leave out what followed")
        )
    return lines


def judge_log(source: LogSource, job: JobConfig, contest: Contest) -> LogReport:
    """Every trained seed and all of them together; with `baselines` naive policies and those of the simulator."""
    contest.say("who acted: fitting the behaviour policy")
    part = part_of(source, contest.split)
    contestants = list(log_contestants(source, job.trainer.seeds, contest))  # type: ignore[attr-defined]
    found = judge_policies(source, part, [c.act for c in contestants], contest.say)
    simulator, judged = source.simulator, [_observed(source, part)]
    for who, own in zip(contestants, found, strict=True):
        truth = None if simulator is None else simulator.truth(who.act)
        judged.append(Judged(who.name, who.seed, truth, own.estimates, own.models, own.practice, own.violations, {}))
    trained = [row for row in judged if row.seed is not None]
    together = [_together(trained)] if len(trained) > 1 else []
    return LogReport([*together, *judged], part, contest.split)


def _observed(source: LogSource, part: Part) -> Judged:
    """Who acted: the mean return of the part, with its true value where the simulator has that policy."""
    truth = None
    if source.simulator is not None and source.env.tasks is None:
        act = source.simulator.policy(source.options.behaviour or source.simulator.behaviours[0])
        truth = None if act is None else source.simulator.truth(act)
    return Judged("logged", None, truth, (observed_return(part.log, part.gamma),), {}, None, {}, {})


def _together(trained: Sequence[Judged]) -> Judged:
    """The mean over seeds, its interval over patients; what each seed came to stands apart."""
    estimates, by_seed = [], {}
    for own in zip(*(row.estimates for row in trained), strict=True):
        estimates.append(combined(own))
        if all(e.value is not None for e in own):
            by_seed[own[0].estimator] = tuple(float(e.value) for e in own if e.value is not None)
    truths = [row.truth for row in trained if row.truth is not None]
    truth = None
    if truths:
        low, value, high = (float(np.mean([getattr(t, name) for t in truths])) for name in ("low", "value", "high"))
        truth = Truth(value, truths[0].exact, low, high)
        by_seed["truth"] = tuple(t.value for t in truths)
    return Judged("trained, all seeds", None, truth, tuple(estimates), {}, None, {}, by_seed)
