"""All estimates of one policy: every number with what it rests on, and whether it may be used at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from refork.replay.ope import estimators
from refork.replay.ope.sums import RESAMPLES, Sums, interval
from refork.replay.ope.weights import Support, cumulative, log_ratios, of_weights, support
from refork.replay.transitions import Transitions

Status = Literal["ok", "by model", "unsupported", "not defined", "failed"]
NOT_CONVERGED = "the model of Q did not converge"
OUT_OF_BOUNDS = "the model of Q left what values can be"
NO_LEVELS = "no dose levels are known of these actions"
POOR = ("IS", "DR ", "observed")
"""Beginnings of estimators that only show how they fail, or have a better form beside them."""


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
    """It converged, to numbers within what values can be."""
    resampled: np.ndarray | None = None
    """(resamples,): values of models refitted to bootstrapped patients; None: the model is taken as given."""
    why_not: str = NOT_CONVERGED
    """Why it is not trusted, if it is not."""


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
    no_clusters: str = NO_LEVELS
    """Why no clusters are known, if none are."""

    @cached_property
    def ratios(self) -> np.ndarray:
        """(N,) log ratios of the logged actions; only of a policy that has probabilities."""
        assert self.policy is not None
        return log_ratios(self.policy, self.behaviour)

    @cached_property
    def support(self) -> Support | None:
        """Of the weights of whole episodes; None: it has no probabilities."""
        return None if self.policy is None else support(self.log, self.policy, self.behaviour)


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
    resampled: np.ndarray | None = field(default=None, repr=False, compare=False)
    """(resamples,) bootstrap values: of the same patients for all policies of a log."""

    @property
    def words(self) -> str:
        return f"estimated under {self.model}"

    def to_json(self) -> dict[str, Any]:
        """JSON values; numbers that are not finite are null."""
        beside = {} if self.support is None else {**asdict(self.support), "ess_share": self.support.ess_share}
        plain = {k: v for k, v in asdict(replace(self, resampled=None)).items() if k != "resampled"}
        return {**_finite(plain), "words": self.words, "support": _finite(beside)}


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in values.items()}


def estimates(evidence: Evidence, seed: int = 0, resamples: int = RESAMPLES, plain: bool = False) -> list[Estimate]:
    """Every estimator for one policy; those that cannot be said why. `plain`: with IS, to show how it fails."""
    found = [*_by_weights(evidence, seed, resamples, plain)]
    for name in evidence.models:
        found += [_by_model(evidence, name, seed, resamples), *_doubly_robust(evidence, name, seed, resamples)]
    return [*found, *_by_clusters(evidence, seed, resamples)]


def _by_weights(evidence: Evidence, seed: int, resamples: int, plain: bool) -> list[Estimate]:
    names = (*(("IS",) if plain else ()), "WIS", "per-decision WIS")
    model = f"importance weights from {evidence.behaviour_source}"
    if evidence.support is None:
        return [_undefined(name, model) for name in names]
    makes = {
        "IS": estimators.importance,
        "WIS": estimators.weighted_importance,
        "per-decision WIS": estimators.per_decision,
    }
    return [
        _weighted(
            evidence,
            name,
            model,
            makes[name](evidence.log, evidence.gamma, evidence.ratios),
            evidence.support,
            seed,
            resamples,
        )
        for name in names
    ]


def _by_model(evidence: Evidence, name: str, seed: int, resamples: int) -> Estimate:
    values, beside = evidence.models[name], evidence.support
    model = f"a {name} model of Q"
    if not values.trusted:
        return Estimate(f"FQE {name}", model, "failed", note=values.why_not)
    supported = beside is not None and beside.enough
    status: Status = "ok" if supported else "by model"
    refits = values.resampled
    note = "interval: over patients, the model " + ("given" if refits is None else "refitted")
    sums = estimators.direct(values.starts)
    plain = Estimate(f"FQE {name}", model, status, support=beside, note=note)
    if refits is None:
        return _stated(sums, evidence.log, plain, seed, resamples)
    low, high = interval(refits)
    return replace(plain, value=sums.value(), low=low, high=high, resampled=refits)


def _doubly_robust(evidence: Evidence, name: str, seed: int, resamples: int) -> list[Estimate]:
    values, found = evidence.models[name], []
    makes = {"DR": estimators.doubly_robust, "WDR": estimators.weighted_doubly_robust}
    model = f"a {name} model of Q and importance weights from {evidence.behaviour_source}"
    for short, make in makes.items():
        full = f"{short} {name}"
        if evidence.support is None:
            found.append(_undefined(full, model))
        elif not values.trusted:
            found.append(Estimate(full, model, "failed", note=values.why_not))
        else:
            sums = make(evidence.log, evidence.gamma, evidence.ratios, values.q, values.v)
            found.append(_weighted(evidence, full, model, sums, evidence.support, seed, resamples))
    return found


def _by_clusters(evidence: Evidence, seed: int, resamples: int) -> list[Estimate]:
    found = []
    for name, values in evidence.models.items():
        full, model = f"OffCEM {name}", f"cluster weights (magnitude of the action) and a {name} model of Q"
        if evidence.clusters is None:
            return [Estimate("OffCEM", model, "not defined", note=evidence.no_clusters)]
        if not values.trusted:
            found.append(Estimate(full, model, "failed", note=values.why_not))
            continue
        sums = estimators.weighted_doubly_robust(evidence.log, evidence.gamma, evidence.clusters, values.q, values.v)
        beside = of_weights(cumulative(evidence.log, evidence.clusters)[:, -1])
        found.append(_weighted(evidence, full, model, sums, beside, seed, resamples))
    return found


def _undefined(name: str, model: str) -> Estimate:
    return Estimate(name, model, "not defined", note="a continuous policy has no probability of a logged action")


def _weighted(
    evidence: Evidence, name: str, model: str, sums: Sums, beside: Support, seed: int, resamples: int
) -> Estimate:
    if not np.isfinite(sums.value()):
        why = beside.why_not or "not a finite number"
        return Estimate(name, model, "unsupported", support=beside, note=why)
    status: Status = "ok" if beside.enough else "unsupported"
    plain = Estimate(name, model, status, support=beside, note=beside.why_not)
    return _stated(sums, evidence.log, plain, seed, resamples)


def observed_return(log: Transitions, gamma: float, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """What the log itself returned: of who acted."""
    beside = of_weights(np.zeros(log.episodes))
    plain = Estimate("observed return", "no model: the mean return of who acted", "ok", support=beside)
    return _stated(estimators.observed(log, gamma), log, plain, seed, resamples)


def _stated(sums: Sums, log: Transitions, plain: Estimate, seed: int, resamples: int) -> Estimate:
    """With its value and interval."""
    values = sums.resampled(log.patients, seed, resamples)
    low, high = interval(values)
    return replace(plain, value=sums.value(), low=low, high=high, resampled=values)


def combined(own: Sequence[Estimate]) -> Estimate:
    """The mean of one estimator over several policies, its interval from the same patients; supported if all are.

    Status, support and note are those of the worst policy.
    """
    worst = max(own, key=_badness)
    values = [e.value for e in own if e.value is not None]
    resamples = [e.resampled for e in own if e.resampled is not None]
    if len(values) < len(own) or len(resamples) < len(own):
        return replace(worst, value=None, low=None, high=None, resampled=None)
    mean = np.mean(resamples, 0)
    low, high = interval(mean)
    return replace(worst, value=float(np.mean(values)), low=low, high=high, resampled=mean)


def _badness(found: Estimate) -> tuple[int, float]:
    order = ("ok", "by model", "unsupported", "failed", "not defined").index(found.status)
    return order, 0.0 if found.support is None else -found.support.ess


def best_supported(found: Sequence[Estimate]) -> Estimate | None:
    """The narrowest interval among what the log supports; FQE, whose intervals are too narrow, only without others."""
    good = [e for e in found if e.status == "ok" and not e.estimator.startswith(POOR)]
    good = [e for e in good if e.low is not None and e.high is not None]
    good = [e for e in good if not e.estimator.startswith("FQE")] or good
    return min(good, key=lambda e: e.high - e.low, default=None)  # type: ignore[operator]


def ranking(by_policy: Mapping[str, Sequence[Estimate]], estimator: str, by_model: bool = False) -> list[str]:
    """Policies by what one estimator says of them, best first; those that the log does not support are left out.

    `by_model`: with those that a model alone speaks of.
    """
    allowed = ("ok", "by model") if by_model else ("ok",)
    values = {
        name: e.value
        for name, found in by_policy.items()
        for e in found
        if e.estimator == estimator and e.status in allowed and e.value is not None
    }
    return sorted(values, key=lambda name: -values[name])


def apart(first: Estimate, second: Estimate) -> int:
    """1: the first is greater, -1: less, by the 95 % interval of their difference over the same patients; 0: neither.

    0 too where they were not resampled alike.
    """
    if first.resampled is None or second.resampled is None or len(first.resampled) != len(second.resampled):
        return 0
    low, high = interval(first.resampled - second.resampled)
    return int(low > 0) - int(high < 0)
