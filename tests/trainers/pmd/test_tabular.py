"""The theory of policy mirror descent on tables, with the exact step pi' ~ pi exp(eta Q)."""

import numpy as np
import pytest


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * (np.log(p) - np.log(q))).sum())


def _mirror_step(policy: np.ndarray, q: np.ndarray, eta: float) -> np.ndarray:
    return _softmax(np.log(policy) + eta * q)


def _magnetic_step(policy: np.ndarray, q: np.ndarray, eta: float, tau: float) -> np.ndarray:
    """arg max eta (<q, pi> - tau KL(pi || uniform)) - KL(pi || old) (arXiv 2206.05825, eq. 3)."""
    return _softmax((np.log(policy) + eta * q) / (1 + eta * tau))


@pytest.mark.parametrize("eta", [0.01, 0.3, 10.0])
def test_every_exact_step_gains_at_least_its_drift(eta: float) -> None:
    """<Q, pi' - pi> >= (1 / eta) (KL(pi' || pi) + KL(pi || pi'))."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        policy, q = _softmax(2 * rng.standard_normal(5)), rng.standard_normal(5)
        after = _mirror_step(policy, q, eta)
        assert q @ (after - policy) >= (_kl(after, policy) + _kl(policy, after)) / eta - 1e-9


def _play(
    payoffs: tuple[np.ndarray, np.ndarray], eta: float, steps: int, tau: float = 0.0
) -> list[tuple[float, float]]:
    """Both players step at once from slightly uneven policies; (running KL, first player's value) after each step."""
    x, y = (_softmax(np.linspace(0.0, 0.3, n)) for n in payoffs[0].shape)
    drift, rows = 0.0, []
    for _ in range(steps):
        new_x = _magnetic_step(x, payoffs[0] @ y, eta, tau)
        new_y = _magnetic_step(y, payoffs[1].T @ x, eta, tau)
        drift += _kl(new_x, x) + _kl(new_y, y)
        x, y = new_x, new_y
        rows.append((drift, float(x @ payoffs[0] @ y)))
    return rows


@pytest.mark.parametrize("eta", [0.05, 0.2])
def test_with_identical_interests_drift_is_bounded_uniformly_in_time(eta: float) -> None:
    """sum_k KL <= eta (V_max - V_0), however long: players take turns, so each step is on a fixed payoff."""
    rng = np.random.default_rng(1)
    payoff = rng.random((4, 4))
    x, y = np.full(4, 0.25), np.full(4, 0.25)
    start, drift = float(x @ payoff @ y), 0.0
    for _ in range(3000):
        new_x = _mirror_step(x, payoff @ y, eta)
        drift, x = drift + _kl(new_x, x), new_x
        new_y = _mirror_step(y, payoff.T @ x, eta)
        drift, y = drift + _kl(new_y, y), new_y
        assert drift <= eta * (payoff.max() - start)
    assert drift > 0.3 * eta * (payoff.max() - start)  # the bound is not idle


def test_at_once_with_identical_interests_drift_levels_off_too() -> None:
    payoff = np.array([[1.0, 0.0], [0.0, 0.6]])
    rows = _play((payoff, payoff), 0.1, 3000)
    assert rows[-1][0] <= 0.1 * (1.0 - 0.4)
    assert rows[-1][0] - rows[1000][0] < 1e-6


PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
ROCK = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


@pytest.mark.parametrize("payoff", [PENNIES, ROCK])
def test_in_a_zero_sum_game_drift_grows_without_end(payoff: np.ndarray) -> None:
    """The negative case: no fixed payoff, no bound; the running KL goes on about linearly in time."""
    rows = _play((payoff, -payoff), 0.1, 3000)
    short, middle, long = (rows[k - 1][0] for k in (300, 1000, 3000))
    assert middle > 3.0 * short
    assert long > 2.4 * middle
    assert long > 0.5


@pytest.mark.parametrize("payoff", [PENNIES, ROCK])
def test_a_magnet_ends_the_drift_of_a_zero_sum_game(payoff: np.ndarray) -> None:
    rows = _play((payoff, -payoff), 0.1, 3000, tau=0.2)
    assert rows[-1][0] - rows[1000][0] < 1e-9
    assert rows[-1][1] == pytest.approx(0.0, abs=1e-6)
