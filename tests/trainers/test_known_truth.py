"""Known truths of ICU-Sepsis: what looks like a good number and is none has to be marked."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.replay.ope.clusters import cluster_ratios, magnitudes
from refork.replay.ope.estimate import Estimate, Evidence, ModelValues, estimates, ranking
from refork.replay.transitions import Transitions, of
from refork.trainers import fqe
from refork.trainers.behaviour_model import Behaviour, clone, fit_behaviour

from tests.trainers.logs import log_for

OPTIMAL, EXPERT = 0.87514, 0.78184


@cache
def expert_log(seed: int = 0) -> Transitions:
    return of(IcuSepsis().log("expert", 2500, seed))


@cache
def modelled(smooth: bool) -> Behaviour:
    torch.set_num_threads(1)
    return fit_behaviour(expert_log(), smooth=smooth)


def judged(name: str, log: Transitions, behaviour: np.ndarray) -> dict[str, Estimate]:
    act = IcuSepsis().policy(name)
    rows = log.rows(np.arange(len(log)))
    policy = act(log.observations[rows], None)[:, 0]
    found = fqe.evaluate(log, [act], 1.0, method="table")[0]
    clusters = cluster_ratios(policy, np.full_like(policy, 0.04), log.actions[:, 0], magnitudes((5, 5)))
    logged = policy[np.arange(len(log)), log.actions[:, 0]]
    models = {"table": ModelValues(found.starts, found.q, found.v, True)}
    evidence = Evidence(log, 1.0, np.asarray(behaviour, np.float64), logged, models, clusters)
    return {e.estimator: e for e in estimates(evidence, plain=True, resamples=50)}


WEIGHTED = ("IS", "WIS", "per-decision WIS", "DR table", "WDR table")


@pytest.mark.parametrize("seed", range(4))
def test_the_optimal_policy_is_unsupported_even_by_the_true_probabilities(seed: int) -> None:
    log = expert_log(seed)
    found = judged("optimal", log, log.behaviour)
    beside = found["WIS"].support
    assert beside is not None
    assert 0.65 < beside.zero < 0.8
    assert beside.ess_share < 0.06
    assert all(found[name].status == "unsupported" for name in WEIGHTED)
    assert found["FQE table"].status == "by model"
    assert found["FQE table"].value == pytest.approx(OPTIMAL, abs=0.05)


def test_unsmoothed_shares_make_even_the_expert_unsupported() -> None:
    found = judged("expert", expert_log(), modelled(False).logged)
    beside = found["WIS"].support
    assert beside is not None
    assert beside.ess == pytest.approx(1.0, abs=0.01)
    assert beside.impossible > 1000
    assert found["IS"].value is None or found["IS"].value > 1e100
    assert all(found[name].status == "unsupported" for name in WEIGHTED)
    assert ranking({"expert": list(found.values())}, "WIS") == []


def test_the_expert_is_supported_by_the_true_probabilities() -> None:
    log = expert_log()
    found = judged("expert", log, log.behaviour)
    assert all(found[name].status == "ok" for name in WEIGHTED)
    assert all(found[name].low < EXPERT < found[name].high for name in WEIGHTED)  # type: ignore[operator]


def test_the_behaviour_model_is_calibrated_and_never_impossible() -> None:
    smooth = modelled(True)
    truth = -np.log(expert_log().behaviour).mean()
    assert truth < smooth.nll < truth + 0.12
    assert smooth.nll < smooth.calibration[0].nll_marginal - 0.5
    assert smooth.calibration[0].ece < 0.04
    assert (smooth.logged > 0).all()
    assert modelled(False).nll == np.inf


def test_what_was_logged_of_a_patient_does_not_enter_what_is_said_of_him() -> None:
    log = log_for("discrete", episodes=40)
    found = fit_behaviour(log, folds=2)
    changed = log.actions.copy()
    changed[:6] = (changed[:6] + 1) % 4
    again = fit_behaviour(replace(log, actions=changed), folds=2)
    assert found.probabilities is not None
    assert again.probabilities is not None
    assert np.array_equal(found.probabilities[:6], again.probabilities[:6])
    assert not np.array_equal(found.probabilities, again.probabilities)


@pytest.mark.parametrize("actions", ["discrete", "continuous", "factored discrete", "factored continuous"])
def test_every_kind_of_action_has_a_behaviour_model_and_a_clone(actions: str) -> None:
    log = log_for(actions)
    found, act = fit_behaviour(log, folds=2), clone(log)
    assert np.isfinite(found.nll)
    assert len(found.calibration) == (log.spec.action.agents if actions.endswith("discrete") else 0)
    acted = act(np.asarray(log.observations[:5]), None)
    assert acted.shape == (5, log.spec.action.agents, log.spec.action.width)
