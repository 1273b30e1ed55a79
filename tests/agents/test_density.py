"""The guardian's densities against exact ones, counts and what was never seen."""

import numpy as np
import pytest
from refork.agents.density import CountDensity, KernelDensity, density_of, fit_density
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec


def _spec(kind: str = "vector", size: int = 1, actions: str = "discrete", sizes: tuple[int, ...] = (2,)) -> LogSpec:
    return LogSpec("", ObservationSpec(kind, size), ActionSpec(actions, sizes, (), (-1.0,), (1.0,)), "units")  # type: ignore[arg-type]


def test_states_are_counted_and_what_was_never_logged_is_below_the_threshold() -> None:
    states, actions = np.array([0] * 6 + [1] * 4), np.array([0] * 5 + [1] + [0] * 4)
    found = fit_density(_spec("states", 3), states, actions[:, None], 5.0, 100, 0)
    assert isinstance(found, CountDensity)
    assert np.exp(found.of_actions(np.array([0, 1, 2]))) == pytest.approx(np.array([[0.5, 0.1], [0.4, 0], [0, 0]]))
    assert np.exp(found.threshold) == pytest.approx(0.05)  # half a pair of ten: the one of its kind is left out
    assert (found.of_actions(np.array([1, 2]))[:, 1] < found.threshold).all()


def test_the_threshold_of_counts_leaves_each_pair_itself_out() -> None:
    states, actions = np.repeat([0, 1], [10, 2]), np.zeros((12, 1), np.int64)
    found = fit_density(_spec("states", 2), states, actions, 50.0, 100, 0)
    assert np.exp(found.threshold) == pytest.approx(9 / 11)


def test_the_kernel_density_is_near_the_true_one() -> None:
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=3000)
    seen = (rng.normal(size=3000) + 6 * actions).astype(np.float32)[:, None]
    found = fit_density(_spec(), seen, actions[:, None], 5.0, 1500, 0)
    assert isinstance(found, KernelDensity)
    points = np.linspace(-2, 2, 41, dtype=np.float32)[:, None]
    true = 0.5 * np.exp(-(points[:, 0] ** 2) / 2) / np.sqrt(2 * np.pi) * seen.std()  # of the standardised feature
    estimate = np.exp(found.of_actions(points))
    assert estimate[:, 0].mean() == pytest.approx(true.mean(), rel=0.05)
    assert np.abs(estimate[:, 0] - true).mean() < 0.15 * true.mean()
    assert estimate[:, 1].max() < 1e-2 * true.max()
    assert estimate[:, 1].argmax() == 40


def test_about_the_percentile_of_fresh_decisions_lies_under_the_threshold() -> None:
    rng = np.random.default_rng(1)
    spec = _spec("vector", 3, "continuous", (1,))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        seen = rng.normal(size=(count, 3)).astype(np.float32)
        return seen, (np.tanh(seen[:, :1]) + 0.1 * rng.normal(size=(count, 1))).astype(np.float32)[:, None]

    for most in (1000, 2000):  # half of them centres; all of them
        seen, actions = draw(2000)
        found = fit_density(spec, seen, actions, 5.0, most, 0)
        assert isinstance(found, KernelDensity)
        fresh, taken = draw(2000)
        inside = found.of_pairs(fresh, taken[:, 0])
        assert (inside < found.threshold).mean() == pytest.approx(0.05, abs=0.02)
        assert (found.of_pairs(fresh, -taken[:, 0]) < found.threshold).mean() > 0.5
        assert inside[:10] == pytest.approx(density_of(found.arrays()).of_pairs(fresh, taken[:, 0])[:10])  # type: ignore[union-attr]


def test_the_bandwidth_follows_the_data() -> None:
    """A curve that a fixed width would blur: the leave-one-out likelihood takes a narrow one."""
    rng = np.random.default_rng(2)
    wide = fit_density(_spec(), rng.normal(size=(1000, 1)).astype(np.float32), np.zeros((1000, 1), int), 5.0, 1000, 0)
    comb = (rng.integers(10, size=(1000, 1)) * 10 + rng.normal(size=(1000, 1)) * 0.1).astype(np.float32)
    narrow = fit_density(_spec(), comb, np.zeros((1000, 1), int), 5.0, 1000, 0)
    assert isinstance(wide, KernelDensity)
    assert isinstance(narrow, KernelDensity)
    assert narrow.scale[0] / comb.std() < 0.5 * wide.scale[0]


def test_what_it_is_not_defined_on_is_said() -> None:
    with pytest.raises(BadInput, match="one decision maker"):
        fit_density(_spec(sizes=(2, 2)), np.zeros((3, 1)), np.zeros((3, 2), int), 5.0, 10, 0)
    with pytest.raises(BadInput, match="needs a log of vectors"):
        fit_density(_spec("states", 3, "continuous", (1,)), np.zeros(3, int), np.zeros((3, 1, 1)), 5.0, 10, 0)
