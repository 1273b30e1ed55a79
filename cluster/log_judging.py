"""Estimates what policies are worth on one part of a log; what cannot be estimated is said, never guessed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from refork.cluster.log_doses import channels, why_no_clusters
from refork.cluster.log_practice import Practice, Situations, acted_in, practice, training_density
from refork.cluster.log_source import LogSource
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, Limit
from refork.envs.swe.tasks import Split
from refork.replay.ope.clusters import cluster_ratios, magnitudes
from refork.replay.ope.estimate import Estimate, Evidence, best_supported, estimates, observed_return
from refork.replay.ope.recorded import check_certainty
from refork.replay.ope.sums import RESAMPLES
from refork.replay.support import cost_log
from refork.replay.transitions import Transitions
from refork.trainers import fqe
from refork.trainers.behaviour_model import Behaviour, fit_behaviour
from refork.trainers.joint_actions import JointActions

WHOLE = 300_000
"""Transitions up to which the behaviour policy is fitted on the whole log, not on the judged part alone."""

log = logging.getLogger("refork.evaluate")


@dataclass(frozen=True)
class Part:
    """The part of the log that is judged on, and who acted in it."""

    log: Transitions
    behaviour: Behaviour
    """Cross-fitted; of the part's transitions."""
    probabilities: np.ndarray
    """(N,): of the logged joint actions: recorded where known, else modelled."""
    source: str
    """Where they are from, in words."""
    known: float
    """Share that was recorded and is used."""
    notes: tuple[str, ...]

    @property
    def gamma(self) -> float:
        return self.log.spec.gamma


def part_of(source: LogSource, split: Split) -> Part:
    """Raises BadInput when the split has no patients."""
    episodes = source.splits[split]
    if not len(episodes):
        raise BadInput(f"there are no {split} patients; choose another --split, or set env.options.fractions")
    own = source.log.subset(episodes)
    if len(source.log) <= WHOLE:
        behaviour = _of_steps(fit_behaviour(source.log), source.log.steps_of(episodes))
    else:
        behaviour = fit_behaviour(own)
    return Part(own, behaviour, *_probabilities(own, behaviour))


def _of_steps(found: Behaviour, steps: np.ndarray) -> Behaviour:
    probabilities = None if found.probabilities is None else found.probabilities[steps]
    return Behaviour(found.kind, found.logged[steps], probabilities, found.calibration, found.nll)


def _probabilities(own: Transitions, behaviour: Behaviour) -> tuple[np.ndarray, str, float, tuple[str, ...]]:
    known = np.asarray(own.behaviour, np.float64)
    try:
        if own.spec.action.kind == "discrete":
            check_certainty(known, behaviour.logged)
    except BadInput as error:
        note = f"recorded behaviour probabilities are refused: {error}. {behaviour.kind} stands in their place"
        return behaviour.logged, behaviour.kind, 0.0, (note,)
    share = float((~np.isnan(known)).mean())
    used = np.where(np.isnan(known), behaviour.logged, known)
    if share == 1:
        return used, "recorded probabilities", share, ()
    if share == 0:
        return used, behaviour.kind, share, ()
    return used, f"recorded probabilities, and {behaviour.kind} where unknown", share, ()


@dataclass(frozen=True)
class Found:
    """What was found of one policy."""

    estimates: tuple[Estimate, ...]
    models: dict[str, fqe.FQE]
    practice: Practice | None
    violations: dict[str, Estimate]
    """Steps an episode that lead to a violation of each limit."""


def judge_policies(
    source: LogSource, part: Part, acts: Sequence[Act], limits: Sequence[Limit], say: Callable[[str], None]
) -> list[Found]:
    """All estimators for all policies. A method that fails is reported as failed, and the others go on."""
    models: dict[str, list[fqe.FQE]] = {}
    undefined = fqe.undefined(part.log)
    missing = [
        Estimate(f"FQE {method}", f"a {method} model of Q", "not defined", note=why)
        for method, why in undefined.items()
        if method in fqe.METHODS
    ]
    for method in (m for m in fqe.METHODS if m not in undefined):
        say(f"FQE by {method}: {len(acts)} policies, {len(part.log)} transitions")
        try:
            models[method] = fqe.evaluate(part.log, acts, part.gamma, method=method, resamples=RESAMPLES)
        except Exception as error:
            log.warning("FQE by %s failed: %s", method, error)
            missing.append(Estimate(f"FQE {method}", f"a {method} model of Q", "failed", note=str(error)))
    situations = Situations(
        part.log, part.behaviour.probabilities, training_density(source.log.subset(source.splits["train"]))
    )
    costs = [_Costs.of(part, limit, acts) for limit in limits]
    say("weights, support, change of dose")
    judged = []
    for k, act in enumerate(acts):
        acted, own = acted_in(part.log, act), {method: found[k] for method, found in models.items()}
        said = estimates(_evidence(part, acted, own), plain=True)
        violations = {limit_name(cost.limit): cost.estimate(k, acted) for cost in costs}
        judged.append(Found((*said, *missing), own, practice(situations, acted), violations))
    return judged


def limit_name(limit: Limit) -> str:
    """E.g. "SpO2 < 92"."""
    return str(limit).removeprefix("o:")


def logged_violations(part: Part, limits: Sequence[Limit]) -> dict[str, Estimate]:
    """Steps an episode that led to a violation of each limit."""
    return {limit_name(limit): observed_return(cost_log(part.log, limit), 1.0) for limit in limits}


@dataclass(frozen=True)
class _Costs:
    """One limit: the part with its violations in place of the reward, and models of how many are to come."""

    limit: Limit
    part: Part
    method: str
    models: Sequence[fqe.FQE]
    """One a policy; () where the method failed."""
    why_not: str

    @classmethod
    def of(cls, part: Part, limit: Limit, acts: Sequence[Act]) -> _Costs:
        """By the steadiest method of FQE that is defined."""
        own = cost_log(part.log, limit)
        own = replace(own, spec=replace(own.spec, gamma=1.0))
        method = next((m for m in ("table", "tree", "network") if m not in fqe.undefined(own)), "network")
        try:
            found, why = fqe.evaluate(own, acts, 1.0, method=method), ""
        except Exception as error:
            log.warning("violations of %s: FQE by %s failed: %s", limit, method, error)
            found, why = [], str(error)
        return cls(limit, replace(part, log=own), method, found, why)

    def estimate(self, policy: int, acted: np.ndarray) -> Estimate:
        """The best that the log supports; otherwise what the model alone says, or why it says nothing."""
        models = {self.method: self.models[policy]} if self.models else {}
        found = estimates(_evidence(self.part, acted, models))
        failed = Estimate(f"FQE {self.method}", f"a {self.method} model of Q", "failed", note=self.why_not)
        by_model = next((e for e in found if e.estimator == failed.estimator), failed)
        return best_supported(found) or by_model


def _evidence(part: Part, acted: np.ndarray, models: dict[str, fqe.FQE]) -> Evidence:
    own = part.log
    values = {method: found.model for method, found in models.items()}
    why = why_no_clusters(own.spec)
    if own.spec.action.kind == "continuous":
        return Evidence(own, part.gamma, part.probabilities, None, values, None, part.source, why)
    chosen = JointActions(own.spec.action).probability(acted, own.actions)
    clusters = _clusters(part, acted)
    return Evidence(own, part.gamma, part.probabilities, chosen, values, clusters, part.source, why)


def _clusters(part: Part, acted: np.ndarray) -> np.ndarray | None:
    """(N,) log ratios of the magnitudes of treatment, where dose levels are known and can be listed."""
    known, joint = channels(part.log.spec), JointActions(part.log.spec.action)
    if known is None or not joint.count or part.behaviour.probabilities is None:
        return None
    policy, behaviour = joint.probabilities(acted), joint.probabilities(part.behaviour.probabilities)
    return cluster_ratios(policy, behaviour, joint.numbers(part.log.actions), magnitudes(known.sizes))
