"""Judges policies learnt from a log, during training and after it: estimates, and the truth where it is known."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from refork.agents.log_policy import LogPolicy
from refork.cluster.family import Contest
from refork.cluster.log_contestants import log_contestants
from refork.cluster.log_judging import Part, judge_policies, limit_name, logged_violations, part_of
from refork.cluster.log_report import Judged, LogReport
from refork.cluster.log_source import LogSource
from refork.envs.log_spec import Act, Limit, Truth, WatchesLimits
from refork.replay.ope.estimate import combined, observed_return
from refork.trainers import fqe
from refork.trainers.config import JobConfig
from refork.trainers.ogsrl.safety import limits_of

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


def judge_log(source: LogSource, job: JobConfig, contest: Contest) -> LogReport:
    """Every trained seed and all of them together; with `baselines` naive policies and those of the simulator.

    The trained policy comes first, who acted second.
    """
    contest.say("who acted: fitting the behaviour policy")
    part = part_of(source, contest.split)
    contestants = list(log_contestants(source, job.trainer.seeds, contest))  # type: ignore[attr-defined]
    limits = _limits(source, job)
    found = judge_policies(source, part, [c.act for c in contestants], limits, contest.say)
    judged = []
    for who, own in zip(contestants, found, strict=True):
        truth = None if source.simulator is None else source.simulator.truth(who.act)
        led = _true_violations(source, who.act, limits)
        judged.append(
            Judged(who.name, who.seed, truth, own.estimates, own.models, own.practice, own.violations, led, {})
        )
    trained = [row for row in judged if row.seed is not None]
    several = len(trained) > 1
    first, others = (_together(trained), judged) if several else (judged[0], judged[1:])
    return LogReport([first, _observed(source, part, limits), *others], part, contest.split)


def _limits(source: LogSource, job: JobConfig) -> list[Limit]:
    """Those that the policy was trained under, if its trainer knows any; otherwise what is always watched."""
    return [limit for limit, _budget in limits_of(source.shape, getattr(job.trainer, "safety", None))]


def _true_violations(source: LogSource, act: Act, limits: Sequence[Limit]) -> dict[str, Truth]:
    if not limits or not isinstance(source.simulator, WatchesLimits):
        return {}
    found = source.simulator.violating_steps(act, limits)
    return {limit_name(limit): truth for limit, truth in zip(limits, found, strict=True)}


def _observed(source: LogSource, part: Part, limits: Sequence[Limit]) -> Judged:
    """Who acted: the mean return of the part, with its true value where a simulator wrote the log."""
    truth, led = None, {}
    if source.simulator is not None and source.env.tasks is None:
        behaviour = source.options.behaviour or source.simulator.behaviours[0]
        truth, act = source.simulator.behaviour_truth(behaviour), source.simulator.policy(behaviour)
        led = {} if act is None else _true_violations(source, act, limits)
    observed, violations = observed_return(part.log, part.gamma), logged_violations(part, limits)
    return Judged("logged", None, truth, (observed,), {}, None, violations, led, {})


def _together(trained: Sequence[Judged]) -> Judged:
    """The mean over seeds, its interval over patients; what each seed came to stands apart."""
    estimates, by_seed = [], {}
    for own in zip(*(row.estimates for row in trained), strict=True):
        estimates.append(combined(own))
        if all(e.value is not None for e in own):
            by_seed[own[0].estimator] = tuple(float(e.value) for e in own if e.value is not None)
    truths = [row.truth for row in trained if row.truth is not None]
    truth = _mean_truth(truths) if truths else None
    if truths:
        by_seed["truth"] = tuple(t.value for t in truths)
    violations = {limit: combined([row.violations[limit] for row in trained]) for limit in trained[0].violations}
    led = {limit: _mean_truth([row.true_violations[limit] for row in trained]) for limit in trained[0].true_violations}
    return Judged("trained, all seeds", None, truth, tuple(estimates), {}, None, violations, led, by_seed)


def _mean_truth(truths: Sequence[Truth]) -> Truth:
    """Over policies judged on the same patients: their intervals do not shrink together."""
    low, value, high = (float(np.mean([getattr(t, name) for t in truths])) for name in ("low", "value", "high"))
    return Truth(value, truths[0].exact, low, high)
