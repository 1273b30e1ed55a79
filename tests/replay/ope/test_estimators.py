"""Estimators on logs that hold every course of events exactly as often as it is likely: then all of them are exact."""

from dataclasses import replace

import numpy as np
import pytest
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.ope import estimators
from refork.replay.ope.clusters import cluster_ratios, magnitudes
from refork.replay.ope.estimate import Estimate, Evidence, ModelValues, apart, best_supported, estimates, ranking
from refork.replay.ope.sums import Sums, interval, mean_of
from refork.replay.ope.weights import cumulative, log_ratios, of_weights, support
from refork.replay.transitions import Transitions

GAMMA = 0.5
PAYS = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): -2.0, (1, 1): 5.0}
"""By first and second action: reward of the second step; the first pays its action."""
TRUE = 0.7 * 1 + GAMMA * (0.09 * 1 + 0.21 * 3 + 0.21 * -2 + 0.49 * 5)
"""Of the policy that takes action 1 with probability .7, whatever is seen."""


def all_courses(copies: int = 1) -> Transitions:
    """Two steps, two actions, a fair coin: the state at the second step is the first action."""
    courses = list(PAYS) * copies
    actions = np.array(courses).reshape(-1, 1)
    rewards = np.array([(a, PAYS[a, b]) for a, b in courses]).ravel()
    states = np.array([(0, 1 + a, 3) for a, _ in courses], np.int32).ravel()
    count = len(rewards)
    return Transitions(
        LogSpec("", ObservationSpec("states", 4), ActionSpec("discrete", (2,)), "units"),
        observations=states,
        actions=actions,
        rewards=rewards.astype(np.float32),
        terminated=np.arange(count) % 2 == 1,
        truncated=np.zeros(count, bool),
        starts=np.arange(len(courses) + 1) * 2,
        patients=np.arange(len(courses)),
        behaviour=np.full(count, 0.5, np.float32),
        dt=np.ones(count, np.float32),
    )


def of_policy(log: Transitions) -> np.ndarray:
    return np.where(log.actions[:, 0] == 1, 0.7, 0.3)


def wrong_model(log: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Consistent with itself (V is the mean of Q under the policy) but of no truth."""
    q = np.tile([4.0, -1.0], log.episodes) * (1 + log.actions[:, 0])
    v = np.tile([4.0 * 1.7, -1.0 * 1.7, 0.0], log.episodes)
    return q, v


def test_every_estimator_is_exact_when_the_log_holds_every_course_of_events() -> None:
    log = all_courses()
    ratios = log_ratios(of_policy(log), log.behaviour)
    q, v = wrong_model(log)
    assert estimators.importance(log, GAMMA, ratios).value() == pytest.approx(TRUE)
    assert estimators.weighted_importance(log, GAMMA, ratios).value() == pytest.approx(TRUE)
    assert estimators.per_decision(log, GAMMA, ratios).value() == pytest.approx(TRUE)
    assert estimators.doubly_robust(log, GAMMA, ratios, q, v).value() == pytest.approx(TRUE)
    assert estimators.weighted_doubly_robust(log, GAMMA, ratios, q, v).value() == pytest.approx(TRUE)
    assert estimators.observed(log, GAMMA).value() == pytest.approx(0.5 + GAMMA * 7 / 4)


def test_the_doubly_robust_ones_need_no_weights_when_the_model_is_right() -> None:
    log = all_courses()
    after = np.array([0.3 * 1 + 0.7 * 3, 0.3 * -2 + 0.7 * 5])
    first, second = log.actions[::2, 0], log.actions[1::2, 0]
    q = np.stack([first + GAMMA * after[first], [PAYS[a, b] for a, b in zip(first, second, strict=True)]], 1).ravel()
    v = np.stack([np.full(4, TRUE), after[first], np.zeros(4)], 1).ravel()
    wrong = np.array([0.3, -0.2, 0.1, 0.4, 0.0, -0.5, 0.2, 0.1])
    assert estimators.doubly_robust(log, GAMMA, wrong, q, v).value() == pytest.approx(TRUE)
    assert estimators.weighted_doubly_robust(log, GAMMA, wrong, q, v).value() == pytest.approx(TRUE)


def test_after_a_cut_the_model_speaks_unless_it_is_the_horizon() -> None:
    log = all_courses()
    cut = replace(log, terminated=np.zeros(8, bool), truncated=log.terminated)
    q, v = wrong_model(log)
    v[2::3] = 10.0
    ratios = log_ratios(of_policy(log), log.behaviour)
    more = GAMMA**2 * 10.0
    assert estimators.doubly_robust(cut, GAMMA, ratios, q, v).value() == pytest.approx(TRUE + more)
    assert estimators.weighted_doubly_robust(cut, GAMMA, ratios, q, v).value() == pytest.approx(TRUE + more)
    at_horizon = replace(cut, spec=replace(log.spec, horizon=2))
    assert estimators.doubly_robust(at_horizon, GAMMA, ratios, q, v).value() == pytest.approx(TRUE)


def test_an_ended_episode_keeps_its_weight() -> None:
    log = all_courses()
    ratios = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    assert cumulative(log, ratios).tolist() == [[1, 3], [3, 7], [5, 11], [7, 15]]
    shorter = replace(log, starts=np.array([0, 1, 2, 4, 6, 8]))
    assert cumulative(shorter, ratios)[0].tolist() == [1, 1]


def test_weights_of_any_size_give_finite_numbers() -> None:
    log = all_courses()
    ratios = np.full(8, 500.0)
    assert estimators.weighted_importance(log, GAMMA, ratios).value() == pytest.approx(0.5 + GAMMA * 7 / 4)
    assert not np.isfinite(estimators.importance(log, GAMMA, ratios).value())
    assert of_weights(np.full(4, 1000.0)).ess == pytest.approx(4)


def test_support_is_counted() -> None:
    found = of_weights(np.log([1.0, 1.0, 2.0, 1e-300]) + np.array([0, 0, 0, -np.inf]))
    assert found.ess == pytest.approx(16 / 6)
    assert found.largest == pytest.approx(0.5)
    assert (found.zero, found.n) == (0.25, 4)
    assert found.mean == pytest.approx(1)
    assert found.why_not == "effective sample size 2.7 of 4 episodes, at least 30 are needed"
    assert of_weights(np.zeros(4000)).enough
    few = np.where(np.arange(4000) < 35, np.log(4000 / 35), -np.inf)
    assert of_weights(few).why_not.startswith("effective sample size 35.0 of 4000 episodes, at least 40")
    assert of_weights(np.full(4000, np.log(0.5))).why_not == (
        "weights average to 0.50, not 1: the log does not cover the policy"
    )
    assert of_weights(np.full(3, -np.inf)).ess == 0


def test_an_action_that_is_said_to_be_impossible_is_counted() -> None:
    log = all_courses()
    behaviour = np.where(np.arange(8) < 2, 0.0, 0.5)
    assert support(log, of_policy(log), behaviour).impossible == 2


def test_the_bootstrap_draws_patients_with_all_their_episodes() -> None:
    sums = mean_of(np.array([0.0, 0.0, 1.0, 1.0]))
    by_episode, by_patient = (sums.resampled(np.array(p), resamples=2000) for p in ([0, 1, 2, 3], [0, 0, 1, 1]))
    assert set(np.unique(by_patient)) == {0.0, 0.5, 1.0}
    assert by_episode.std() == pytest.approx(0.25, abs=0.02)
    assert by_patient.std() == pytest.approx(0.5 / 2**0.5, abs=0.02)
    nothing = Sums(np.zeros((2, 1)), np.zeros((2, 1))).resampled(np.arange(2))
    assert np.isnan(interval(nothing)).all()


def test_the_magnitude_of_a_set_of_treatments_is_the_sum_of_its_levels() -> None:
    assert magnitudes((2, 2, 2)).tolist() == [0, 1, 1, 2, 1, 2, 2, 3]
    assert magnitudes((5, 5))[[0, 4, 5, 24]].tolist() == [0, 4, 1, 8]


def test_a_cluster_weighs_what_its_actions_weigh_together() -> None:
    policy, behaviour = np.array([[0.0, 0.5, 0.3, 0.2]]), np.array([[0.1, 0.1, 0.4, 0.4]])
    ratio = cluster_ratios(policy, behaviour, np.array([2]), magnitudes((2, 2)))
    assert np.exp(ratio) == pytest.approx([0.8 / 0.5])


def _evidence(log: Transitions, **changed: object) -> Evidence:
    q, v = wrong_model(log)
    model = ModelValues(v[::3], q, v, True)
    given = Evidence(log, GAMMA, np.asarray(log.behaviour), of_policy(log), {"table": model}, np.zeros(len(log)))
    return replace(given, **changed)  # type: ignore[arg-type]


def _by_name(found: list[Estimate]) -> dict[str, Estimate]:
    return {e.estimator: e for e in found}


def test_too_small_a_sample_supports_nothing_but_the_model() -> None:
    found = _by_name(estimates(_evidence(all_courses())))
    assert {name: e.status for name, e in found.items()} == {
        "WIS": "unsupported",
        "per-decision WIS": "unsupported",
        "FQE table": "by model",
        "DR table": "unsupported",
        "WDR table": "unsupported",
        "OffCEM table": "unsupported",
    }
    assert found["WIS"].value == pytest.approx(TRUE)
    assert found["WIS"].words == "estimated under importance weights from recorded probabilities"


def test_what_is_supported_has_its_interval_and_is_ranked() -> None:
    good = estimates(_evidence(all_courses(100)), plain=True)
    worse = estimates(_evidence(all_courses(100), policy=np.full(800, 0.5)))
    assert all(e.status == "ok" and e.low < e.value < e.high for e in good if e.estimator != "FQE table")  # type: ignore[operator]
    assert ranking({"worse": worse, "good": good}, "WIS") == ["good", "worse"]
    assert ranking({"few": estimates(_evidence(all_courses())), "good": good}, "WIS") == ["good"]


def test_a_continuous_policy_and_an_untrusted_model_are_not_guessed_at() -> None:
    found = _by_name(estimates(_evidence(all_courses(), policy=None, clusters=None)))
    assert found["WIS"].status == found["DR table"].status == found["OffCEM"].status == "not defined"
    assert found["FQE table"].value is not None
    log = all_courses()
    q, v = wrong_model(log)
    failed = _by_name(estimates(_evidence(log, models={"linear": ModelValues(v[::3], q, v, False)})))
    assert failed["FQE linear"].status == failed["WDR linear"].status == "failed"
    assert ranking({"a": list(failed.values())}, "FQE linear") == []
    assert failed["FQE linear"].note == "the model of Q did not converge"


def test_what_a_model_alone_says_is_not_ranked_unless_asked_for() -> None:
    by_model = [Estimate("FQE table", "", "by model", 9.0)]
    both = {"far": by_model, "near": [Estimate("FQE table", "", "ok", 1.0)]}
    assert ranking(both, "FQE table") == ["near"]
    assert ranking(both, "FQE table", by_model=True) == ["far", "near"]
    assert best_supported(by_model) is None


def test_policies_are_apart_when_the_interval_of_their_difference_leaves_out_0() -> None:
    draws = np.linspace(0, 1, 100)
    low, high, wide = (
        Estimate("WIS", "", "ok", 0.5, resampled=values) for values in (draws, draws + 0.1, draws[::-1] + 0.1)
    )
    assert (apart(high, low), apart(low, high), apart(wide, low)) == (1, -1, 0)
    assert apart(low, Estimate("WIS", "", "ok", 0.5)) == 0
