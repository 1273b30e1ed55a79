import numpy as np
import pytest
from refork.trainers.stats import bootstrap, iqm, mean, pass_at_k, stratified_bootstrap


@pytest.mark.parametrize(
    ("attempts", "resolved", "k", "expected"),
    [(4, 0, 4, 0.0), (4, 1, 1, 0.25), (4, 1, 4, 1.0), (4, 2, 2, 5 / 6), (10, 3, 5, 1 - 21 / 252)],
)
def test_pass_at_k_by_counting(attempts: int, resolved: int, k: int, expected: float) -> None:
    assert pass_at_k(attempts, resolved, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("attempts", "resolved", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_pass_at_k_refuses_what_is_not_defined(attempts: int, resolved: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(attempts, resolved, k)


def test_interquartile_mean_weighs_the_edges_by_their_part() -> None:
    assert iqm(np.array([100.0, 1.0, 2.0, -50.0])) == pytest.approx(1.5)  # the middle two
    assert iqm(np.array([0.0, 1.0, 2.0, 3.0, 99.0, 7.0])) == pytest.approx((0.5 * 1 + 2 + 3 + 0.5 * 7) / 3)
    assert iqm(np.array([5.0])) == 5.0
    assert iqm(np.array([[0.0, 0, 0, 9], [1, 1, 1, 1]])).tolist() == [0.0, 1.0]


def test_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        interval = bootstrap(rng.random(40) < 0.3, seed=trial, resamples=500)
        hits += interval.low <= 0.3 <= interval.high
    assert 176 <= hits <= 198


def test_bootstrap_of_a_constant_is_that_constant() -> None:
    interval = bootstrap([0.5] * 7)
    assert (interval.estimate, interval.low, interval.high) == (0.5, 0.5, 0.5)
    assert str(interval) == "0.500 [0.500, 0.500]"


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [[1.0], [2.0]]])
def test_bootstrap_refuses_nothing_and_nan(values: list) -> None:
    with pytest.raises(ValueError, match="non-empty row of finite"):
        bootstrap(values)


def test_a_stratified_bootstrap_draws_within_strata() -> None:
    apart = stratified_bootstrap([[0.0] * 5, [1.0] * 5], statistic=mean)
    assert (apart.low, apart.estimate, apart.high) == (0.5, 0.5, 0.5)  # each stratum is constant
    together = bootstrap([0.0] * 5 + [1.0] * 5)
    assert together.low < 0.5 < together.high


def test_the_interquartile_mean_of_all_strata_is_of_their_union() -> None:
    found = stratified_bootstrap([[0.0, 0.1], [0.2, 0.3, 0.4, 9.0]])
    assert found.estimate == pytest.approx(float(iqm(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 9.0]))))


@pytest.mark.parametrize("strata", [[], [[]], [[1.0], [float("nan")]]])
def test_a_stratum_without_finite_numbers_is_refused(strata: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="non-empty rows of finite numbers"):
        stratified_bootstrap(strata)
