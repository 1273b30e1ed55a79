"""All estimates of one policy: every number with what it rests on, and whether it may be used at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from refork.replay.ope import estimators
from refork.replay.ope.sums import RESAMPLES, Sums
from refork.replay.ope.weights import Support, cumulative, log_ratios, of_weights, support
from refork.replay.transitions import Transitions

Status = Literal["ok", "by model", "unsupported", "not defined", "failed"]
RANKED: tuple[Status, ...] = ("ok", "by model")
"""Estimates that a ranking may rest on."""


@dataclass(frozen=True)
class ModelValues:
    """What a model of Q says of one policy (trainers/fqe.py)."""

    starts: np.ndarray
    """(E,)"""
    q: np.ndarray
    """(N,)"""
    v: np.ndarray
    """(R,)"""
    trusted: bool
    """It converged, within what values can be."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one policy on one log."""

    log: Transitions
    gamma: float
    behaviour: np.ndarray
    """(N,): probability of each logged joint action under who acted."""
    policy: np.ndarray | None
    """(N,): under the policy; None: it is continuous and has no probabilities."""
    models: Mapping[str, ModelValues]
    clusters: np.ndarray | None = None
    """(N,) log ratios of clusters of actions; None: no clusters are known."""
    behaviour_source: str = "recorded probabilities"


@dataclass(frozen=True)
class Estimate:
    """One number and what stands beside it."""

    estimator: str
    model: str
    """What it was estimated under, in words."""
    status: Status
    value: float | None = None
    low: float | None = None
    """95 % interval, bootstrap by patient."""
    high: float | None = None
    support: Support | None = None
    note: str = ""

    @property
    def words(self) -> str:
        return f"estimated under {self.model}"

    def to_json(self) -> dict[str, Any]:
        beside = {} if self.support is None else {**asdict(self.support), "ess_share": self.support.ess_share}
        return {**asdict(self), "words": self.words, "support": beside}


def estimates(evidence: Evidence, seed: int = 0, resamples: int = RESAMPLES, plain: bool = False) -> list[Estimate]:
    """Every estimator for one policy; those that cannot be said why. `plain`: with IS, to show how it fails."""
    found = [*_by_weights(evidence, seed, resamples, plain)]
    for name in evidence.models:
        found += [_by_model(evidence, name, seed, resamples), *_doubly_robust(evidence, name, seed, resamples)]
    return [*found, *_by_clusters(evidence, seed, resamples)]


def _by_weights(evidence: Evidence, seed: int, resamples: int, plain: bool) -> list[Estimate]:
    names = (*(("IS",) if plain else ()), "WIS", "per-decision WIS")
    model = f"importance weights from {evidence.behaviour_source}"
    if evidence.policy is None:
        return [_undefined(name, model) for name in names]
    ratios, beside = _ratios(evidence)
    makes = {
        "IS": estimators.importance,
        "WIS": estimators.weighted_importance,
        "per-decision WIS": estimators.per_decision,
    }
    return [
        _weighted(evidence, name, model, makes[name](evidence.log, evidence.gamma, ratios), beside, seed, resamples)
        for name in names
    ]


def _ratios(evidence: Evidence) -> tuple[np.ndarray, Support]:
    assert evidence.policy is not None
    beside = support(evidence.log, evidence.policy, evidence.behaviour)
    return log_ratios(evidence.policy, evidence.behaviour), beside


def _by_model(evidence: Evidence, name: str, seed: int, resamples: int) -> Estimate:
    values = evidence.models[name]
    beside = None if evidence.policy is None else _ratios(evidence)[1]
    model = f"a {name} model of Q"
    if not values.trusted or not np.isfinite(values.starts).all():
        return Estimate(f"FQE {name}", model, "failed", note="did not converge, or left what values can be")
    found = _stated(estimators.direct(values.starts), evidence, seed, resamples)
    supported = beside is not None and beside.enough
    note = "interval: over patients, the model given"
    return Estimate(f"FQE {name}", model, "ok" if supported else "by model", *found, beside, note)


def _doubly_robust(evidence: Evidence, name: str, seed: int, resamples: int) -> list[Estimate]:
    values, found = evidence.models[name], []
    makes = {"DR": estimators.doubly_robust, "WDR": estimators.weighted_doubly_robust}
    model = f"a {name} model of Q and importance weights from {evidence.behaviour_source}"
    for short, make in makes.items():
        full = f"{short} {name}"
        if evidence.policy is None:
            found.append(_undefined(full, model))
        elif not values.trusted or not np.isfinite(values.starts).all():
            found.append(Estimate(full, model, "failed", note="its model did not converge, or left what values can be"))
        else:
            ratios, beside = _ratios(evidence)
            sums = make(evidence.log, evidence.gamma, ratios, values.q, values.v)
            found.append(_weighted(evidence, full, model, sums, beside, seed, resamples))
    return found


def _by_clusters(evidence: Evidence, seed: int, resamples: int) -> list[Estimate]:
    found = []
    for name, values in evidence.models.items():
        full, model = f"OffCEM {name}", f"cluster weights (magnitude of the action) and a {name} model of Q"
        if evidence.clusters is None:
            return [Estimate("OffCEM", model, "not defined", note="no dose levels are known of these actions")]
        if values.trusted and np.isfinite(values.starts).all():
            sums = estimators.weighted_doubly_robust(
                evidence.log, evidence.gamma, evidence.clusters, values.q, values.v
            )
            beside = of_weights(cumulative(evidence.log, evidence.clusters)[:, -1])
            found.append(_weighted(evidence, full, model, sums, beside, seed, resamples))
    return found


def _undefined(name: str, model: str) -> Estimate:
    return Estimate(name, model, "not defined", note="a continuous policy has no probability of a logged action")


def _weighted(
    evidence: Evidence, name: str, model: str, sums: Sums, beside: Support, seed: int, resamples: int
) -> Estimate:
    value, low, high = _stated(sums, evidence, seed, resamples)
    if not np.isfinite(value):
        why = beside.why_not or "not a finite number"
        return Estimate(name, model, "unsupported", None, None, None, beside, why)
    return Estimate(name, model, "ok" if beside.enough else "unsupported", value, low, high, beside, beside.why_not)


def _stated(sums: Sums, evidence: Evidence, seed: int, resamples: int) -> tuple[float, float, float]:
    return (sums.value(), *sums.interval(evidence.log.patients, seed, resamples))


def ranking(by_policy: Mapping[str, Sequence[Estimate]], estimator: str) -> list[str]:
    """Policies by what one estimator says of them, best first; those that it cannot speak of are left out."""
    values = {
        name: e.value
        for name, found in by_policy.items()
        for e in found
        if e.estimator == estimator and e.status in RANKED and e.value is not None
    }
    return sorted(values, key=lambda name: -values[name])
