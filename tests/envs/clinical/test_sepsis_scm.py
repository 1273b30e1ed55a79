"""The sepsis model as a simulator: what is seen, logs, confounding of known strength, exact values."""

from typing import Any

import numpy as np
import pytest
from refork.envs.clinical.sepsis_scm import FAVOURED, SepsisScm
from refork.envs.clinical.sepsis_scm_exact import HALF, exact_model
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogArrays
from refork.envs.simulators import open_simulator
from refork.replay.transitions import of

from tests.envs.clinical.whole_tensor import transitions

ID = "refork/SepsisSCM-v0"


def rows(log: LogArrays) -> np.ndarray:
    """Row in which each transition was seen."""
    return np.arange(len(log.rewards)) + np.repeat(np.arange(len(log.starts) - 1), np.diff(log.starts))


@pytest.mark.parametrize(
    ("hide", "size", "names"),
    [
        ((), 1440, 8),
        (("diabetes",), 720, 7),
        (("diabetes", "glucose"), 144, 6),
        (("glucose",), 288, 7),
    ],
)
def test_what_is_hidden_is_in_no_number_and_no_feature(hide: tuple[str, ...], size: int, names: int) -> None:
    simulator = SepsisScm(hide)
    assert simulator.spec.observation.size == len(simulator.features) == size
    assert len(simulator.spec.observation.names) == simulator.features.shape[1] == names
    assert not set(hide) & set(simulator.spec.observation.names)
    assert sorted(set(simulator.shown.tolist())) == list(range(size))
    if "diabetes" in hide:
        assert (simulator.shown[:HALF] == simulator.shown[HALF:]).all()


def test_features_say_what_a_state_is() -> None:
    simulator = SepsisScm()
    names = simulator.spec.observation.names
    assert names == (
        "heart_rate",
        "systolic_pressure",
        "oxygen",
        "glucose",
        "antibiotics",
        "vasopressor",
        "ventilation",
    )
    full = 720 + ((((2 * 3 + 0) * 2 + 1) * 5 + 4) * 8 + 0b010)
    assert simulator.features[simulator.shown[full]].tolist() == [2, 0, 1, 4, 0, 1, 0]


@pytest.mark.parametrize("behaviour", SepsisScm.behaviours)
def test_every_step_of_a_log_is_a_step_of_the_model(behaviour: str) -> None:
    """Each transition leads to the row after it, with a probability above 0; a log shifted by one row fails."""
    simulator = SepsisScm((), strength=3.0)
    log = simulator.log(behaviour, 300, 4)
    tensor, here = transitions(exact_model()), rows(log)
    before, after = log.observations[here], log.observations[here + 1]
    assert (tensor[before, log.actions[:, 0], after] > 0).all()
    assert (tensor[before[:-1], log.actions[:-1, 0], after[1:]] > 0).mean() < 0.9
    assert log.behaviour == pytest.approx(simulator.table(behaviour)[before, log.actions[:, 0]])
    assert (log.rewards == exact_model().rewards[after]).all()
    assert (log.terminated == exact_model().ends[after]).all()


def test_an_episode_is_cut_after_twenty_steps_and_only_then() -> None:
    log = of(SepsisScm().log("optimal", 500, 0))
    lengths = np.diff(log.starts)
    last = log.starts[1:] - 1
    assert lengths.max() == 20
    assert (log.truncated[last] == ~log.terminated[last]).all()
    assert log.truncated.sum() == log.truncated[last].sum() > 0
    assert (lengths[log.truncated[last]] == 20).all()


def test_a_log_is_its_seed_and_its_patients_are_independent_of_their_number() -> None:
    simulator = SepsisScm()
    one, again, other = (simulator.log("softened", 50, seed) for seed in (1, 1, 2))
    assert (one.observations == again.observations).all()
    assert len(one.observations) != len(other.observations) or (one.observations != other.observations).any()


@pytest.mark.parametrize("options", [{}, {"hide": ("diabetes", "glucose")}, {"factored": True, "strength": 5.0}])
@pytest.mark.parametrize("behaviour", SepsisScm.behaviours)
def test_the_mean_return_of_a_log_is_the_behaviours_value(options: dict[str, Any], behaviour: str) -> None:
    simulator = open_simulator(ID, options)
    assert isinstance(simulator, SepsisScm)
    returns = of(simulator.log(behaviour, 8000, 9)).returns(1.0)
    truth = simulator.behaviour_truth(behaviour)
    assert truth.exact
    assert abs(returns.mean() - truth.value) < 4 * returns.std() / np.sqrt(8000)


def test_a_policy_is_given_only_when_the_log_shows_all_it_looks_at() -> None:
    hidden, open_, factored = SepsisScm(), SepsisScm(()), SepsisScm((), factored=True)
    for name, simulator, known in (
        ("random", hidden, True),
        ("optimal", hidden, False),
        ("optimal", open_, True),
        ("optimal", factored, True),
        ("softened", open_, True),
        ("softened", factored, False),  # one of eight regimens, not three independent choices
        ("confounded", hidden, True),
        ("confounded", SepsisScm(strength=2.0), False),
    ):
        act = simulator.policy(name)
        assert (act is not None) == known, name
        if act is not None:
            assert simulator.truth(act).value == pytest.approx(simulator.behaviour_truth(name).value, abs=1e-9)


def test_three_decision_makers_are_the_same_model() -> None:
    one, three = SepsisScm().log("softened", 400, 2), SepsisScm(factored=True).log("softened", 400, 2)
    assert three.spec.action.names == ("antibiotics", "ventilation", "vasopressor")
    assert (three.actions @ np.array([4, 2, 1]) == one.actions[:, 0]).all()
    for name in ("observations", "rewards", "behaviour", "starts"):
        assert (getattr(one, name) == getattr(three, name)).all()

    def act(states: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
        return np.broadcast_to([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]], (len(states), 3, 2))

    def same(states: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
        return np.broadcast_to([[0.1, 0, 0.4, 0, 0.1, 0, 0.4, 0]], (len(states), 1, 8))

    assert SepsisScm(factored=True).truth(act).value == pytest.approx(SepsisScm().truth(same).value)


@pytest.mark.parametrize("strength", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("hide", [("diabetes",), ("diabetes", "glucose")])
def test_confounding_has_the_odds_ratio_that_was_asked_for(strength: float, hide: tuple[str, ...]) -> None:
    simulator = SepsisScm(hide, strength=strength)
    table = simulator.table("confounded")
    assert np.allclose(table.sum(-1), 1)
    q, p = table[HALF:, FAVOURED].sum(-1), table[:HALF, FAVOURED].sum(-1)
    assert q * (1 - p) / (p * (1 - q)) == pytest.approx(strength)


def test_confounding_leaves_what_the_log_shows_of_the_policy_as_it_was() -> None:
    """By observed state, over all visits: the same shares of actions at every strength."""
    seen = []
    for strength in (1.0, 8.0):
        simulator = SepsisScm(strength=strength)
        table = simulator.table("confounded")
        visits = simulator.model.visits(table).sum(0)
        flows = np.zeros((720, 8))
        np.add.at(flows, simulator.shown, visits[:, None] * table)
        total = flows.sum(-1, keepdims=True)
        seen.append(np.where(total > 1e-9, flows / np.maximum(total, 1e-300), np.nan))
    both = np.isfinite(seen[0]).all(-1) & np.isfinite(seen[1]).all(-1)
    assert both.sum() == 303
    assert np.abs(seen[0] - seen[1])[both].max() < 1e-8


def test_the_recorded_probabilities_are_those_of_who_acted_who_knows_the_diabetes() -> None:
    simulator = SepsisScm(strength=10.0)
    table, log = simulator.table("confounded"), simulator.log("confounded", 500, 0)
    states, chosen = log.observations[rows(log)], log.actions[:, 0]
    assert simulator.shown[:HALF].tolist() == list(range(HALF))
    without, having = table[:HALF][states, chosen], table[HALF:][states, chosen]
    who = np.repeat(np.arange(500), np.diff(log.starts))
    match = [np.abs(log.behaviour - p) < 1e-6 for p in (without, having)]
    alike = [np.array([match[k][who == e].all() for e in range(500)]) for k in (0, 1)]
    assert (alike[0] | alike[1]).all()  # one of the two for the whole episode
    assert 0.05 < (~alike[0]).mean() < 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hide": ("oxygen",)}, "hide: diabetes and glucose can be hidden, not oxygen"),
        ({"gamma": 0.0}, "gamma: expected above 0"),
        ({"colour": 1}, "options of refork/SepsisSCM-v0: colour: .* there are: hide, published_glucose, strength"),
        ({"strength": "high"}, "options of refork/SepsisSCM-v0: strength: "),
        ({"factored": "perhaps"}, "options of refork/SepsisSCM-v0: factored: "),
        ({"strength": 0.5}, "strength: expected 1 or more, got 0.5"),
        ({"strength": float("nan")}, "strength"),
        ({"softness": 1.5}, r"softness: expected a share from 0 to 1, got 1\.5"),
        ({"hide": "diabetes"}, "options of refork/SepsisSCM-v0: hide: "),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_simulator(ID, options)


def test_an_unknown_behaviour_names_those_there_are() -> None:
    with pytest.raises(BadInput, match="softened, random, never_treat, optimal, confounded"):
        SepsisScm().log("clinician", 1, 0)


def test_values_are_discounted_when_asked() -> None:
    def never(states: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
        return np.broadcast_to(np.eye(8)[:1], (len(states), 1, 8))

    plain, halved = (SepsisScm(gamma=gamma).truth(never).value for gamma in (1.0, 0.5))
    returns = of(SepsisScm(gamma=0.5).log("never_treat", 20_000, 1)).returns(0.5)
    assert abs(returns.mean() - halved) < 4 * returns.std() / np.sqrt(20_000)
    assert abs(halved) < abs(plain)
