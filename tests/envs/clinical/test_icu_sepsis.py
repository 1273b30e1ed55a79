"""ICU-Sepsis: the package's tables, exact values, logs."""

from importlib.metadata import files

import numpy as np
import pytest
from refork.envs.clinical.icu_sepsis import DEATH, SURVIVAL, IcuSepsis, exact_value, optimal_policy, tables
from refork.envs.forkable import BadInput
from refork.replay.transitions import of


@pytest.mark.parametrize(
    ("name", "value"), [("random", 0.78007), ("expert", 0.78184), ("optimal", 0.87514), ("worst", 0.63299)]
)
def test_values_are_the_known_ones(name: str, value: float) -> None:
    simulator = IcuSepsis()
    act = simulator.policy(name)
    assert act is not None
    assert simulator.truth(act).value == pytest.approx(value, abs=5e-6)


def test_the_optimal_policy_beats_every_one_step_change() -> None:
    best = exact_value(optimal_policy())
    changed = optimal_policy().copy()
    changed[:100] = 1 / 25
    assert exact_value(changed) < best


def test_a_log_is_contiguous_and_says_how_it_ended() -> None:
    log = IcuSepsis().log("expert", 200, 3)
    assert len(log.observations) == len(log.rewards) + 200
    assert log.terminated.sum() == 200
    assert log.terminated[log.starts[1:] - 1].all()
    last = log.observations[log.starts[1:] + np.arange(200)]
    assert (last >= DEATH).all()
    assert ((last == SURVIVAL) == (log.rewards[log.starts[1:] - 1] == 1)).all()
    rows = np.arange(len(log.rewards)) + np.repeat(np.arange(200), np.diff(log.starts))
    assert log.behaviour == pytest.approx(tables().expert[log.observations[rows], log.actions[:, 0]])
    assert (log.behaviour > 0).all()


def test_the_mean_return_of_a_log_is_its_policys_value() -> None:
    log = IcuSepsis().log("random", 20_000, 0)
    assert log.rewards.sum() / 20_000 == pytest.approx(0.78007, abs=4 * np.sqrt(0.78 * 0.22 / 20_000))


def test_each_row_is_followed_by_where_the_action_led() -> None:
    """Failure 26: the row after a transition is its next observation; other rows are mostly impossible steps."""
    log = IcuSepsis().log("random", 300, 1)
    rows = np.arange(len(log.rewards)) + np.repeat(np.arange(300), np.diff(log.starts))
    before, after, chosen = log.observations[rows], log.observations[rows + 1], log.actions[:, 0]
    assert (tables().transitions[before, chosen, after] > 0).all()
    assert ((after == SURVIVAL) == (log.rewards == 1)).all()
    shuffled = np.random.default_rng(0).permutation(after)
    assert (tables().transitions[before, chosen, shuffled] > 0).mean() < 0.5


def test_simulated_steps_are_as_frequent_as_the_table_says() -> None:
    log = IcuSepsis().log("random", 40_000, 5)
    rows = np.arange(len(log.rewards)) + np.repeat(np.arange(40_000), np.diff(log.starts))
    before, after = log.observations[rows], log.observations[rows + 1]
    for state in np.bincount(before).argsort()[-5:]:
        met = after[before == state]
        found = np.bincount(met, minlength=716) / len(met)
        expected = tables().transitions[state].mean(0)
        assert not found[expected == 0].any()
        often = expected * len(met) > 5
        assert (np.abs(found - expected)[often] <= 5 * np.sqrt(expected * (1 - expected) / len(met))[often]).all()
        shares = np.bincount(log.actions[before == state, 0], minlength=25) / len(met)
        assert shares == pytest.approx(np.full(25, 0.04), abs=5 * np.sqrt(0.04 / len(met)))


def test_two_decision_makers_are_the_same_patients() -> None:
    one, two = IcuSepsis().log("expert", 300, 2), IcuSepsis(factored=True).log("expert", 300, 2)
    assert two.spec.action.names == ("fluids", "vasopressor")
    assert (two.actions @ np.array([5, 1]) == one.actions[:, 0]).all()
    for name in ("observations", "rewards", "behaviour", "starts"):
        assert (getattr(one, name) == getattr(two, name)).all()


def test_which_channel_is_which() -> None:
    """Vasopressors are given to few patients, those with failing organs; fluids to most, whatever their score."""
    shipped = next(path for path in files("icu-sepsis") or () if path.name == "dynamics.npz")
    sofa = np.load(str(shipped.locate()))["sofa_scores"][:DEATH]
    expert = IcuSepsis().table("expert")[:DEATH].reshape(-1, 5, 5)
    fluids, vasopressor = 1 - expert.sum(2)[:, 0], 1 - expert.sum(1)[:, 0]
    assert np.corrcoef(vasopressor, sofa)[0, 1] > 0.6 > 0.2 > np.corrcoef(fluids, sofa)[0, 1]
    assert vasopressor.mean() < 0.3 < 0.6 < fluids.mean()


def test_a_product_of_two_policies_is_worth_what_its_joint_policy_is() -> None:
    shares = np.random.default_rng(0).dirichlet(np.ones(5), (716, 2))
    flat = np.einsum("sa,sb->sab", shares[:, 0], shares[:, 1]).reshape(716, 25)
    two = IcuSepsis(factored=True).truth(lambda states, _allowed: shares[states])
    one = IcuSepsis().truth(lambda states, _allowed: flat[states][:, None])
    assert two.exact
    assert two.value == pytest.approx(one.value, abs=1e-12)


def test_a_policy_that_two_cannot_play_apart_is_not_given_but_has_its_value() -> None:
    two = IcuSepsis(factored=True)
    assert two.policy("expert") is None
    assert two.behaviour_truth("expert").value == pytest.approx(0.78184, abs=5e-6)
    act = two.policy("optimal")
    assert act is not None
    assert two.truth(act).value == pytest.approx(0.87514, abs=5e-6)


def test_values_are_discounted_when_asked() -> None:
    simulator = IcuSepsis(gamma=0.9)
    returns = of(simulator.log("expert", 20_000, 3)).returns(0.9)
    value = simulator.behaviour_truth("expert").value
    assert abs(returns.mean() - value) < 4 * returns.std() / np.sqrt(20_000)
    best = simulator.behaviour_truth("optimal").value
    assert best > value
    assert exact_value(IcuSepsis().table("optimal"), 0.9) < best  # slower cures count less now
    assert exact_value(IcuSepsis().table("optimal")) > exact_value(simulator.table("optimal"))


def test_a_discount_that_means_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"gamma: expected above 0, at most 1, got 1\.5"):
        IcuSepsis(gamma=1.5)


def test_an_unknown_behaviour_names_those_there_are() -> None:
    with pytest.raises(BadInput, match="expert, random, optimal, worst"):
        IcuSepsis().log("best", 1, 0)
