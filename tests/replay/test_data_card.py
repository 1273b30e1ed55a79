"""The data card counts what is there, and warns of what makes a log hard to learn from."""

from dataclasses import replace

import numpy as np
import pytest
from refork.cluster.log_source import LogOptions
from refork.replay.data_card import data_card
from refork.replay.transitions import digest, of, split_by_patient

from tests.replay.test_transitions import small_log
from tests.trainers.logs import log_for


def test_the_card_counts() -> None:
    log = of(small_log())
    card = data_card(log, "small", {"missing": {"feature 0": 2}, "rows": 8, "missing_policy": "mask", "both_ends": 1})
    assert (card.patients, card.episodes, card.transitions) == (2, 3, 6)
    assert card.lengths == {"min": 1, "p25": 1.5, "median": 2, "p75": 2.5, "max": 3}
    assert card.actions == {"decision maker 0": [3, 3]}
    assert card.ends == {"terminated": 2, "truncated": 1, "both (terminated wins)": 1}
    assert card.dt["other than 1"] == 1 / 6
    assert card.rewards["mean return"] == 7
    assert card.behaviour_known == 1
    quantiles = {"min": 0, "p25": 2, "median": 4, "p75": 6, "max": 8}
    sd = pytest.approx((60 / 9) ** 0.5)
    assert card.features == {"feature 0": {**quantiles, "mean": 4, "sd": sd, "missing": 0.25}}
    assert card.content == digest(log)
    assert card.missing == {"feature 0": 2}
    assert any(w.startswith("1 episodes are both") for w in card.warnings)
    assert any(w.startswith("fewer than 3 patients") for w in card.warnings)


def test_the_card_warns() -> None:
    log = of(small_log())
    wild = np.stack([log.observations[:, 0], log.observations[:, 0] * 1e7], 1)
    spec = replace(log.spec, observation=replace(log.spec.observation, size=2, names=("o:a", "o:b")))
    same = replace(
        log, spec=spec, observations=wild, actions=np.zeros((6, 1), np.int64), rewards=np.ones(6, np.float32)
    )
    warnings = " / ".join(data_card(same, "small", {}).warnings)
    assert "o:b: wild scale, 0 ... 8e+07" in warnings
    assert "all logged actions are equal" in warnings
    assert "the reward is constant" in warnings
    assert "1 of 2 declared actions were never taken: [1]" in warnings
    assert "o:a" not in warnings


def test_features_are_exact_far_from_zero() -> None:
    log = of(small_log())
    far = replace(log, observations=(log.observations + 1e6).astype(np.float32))
    assert data_card(far, "small", {}).features["feature 0"]["sd"] == pytest.approx((60 / 9) ** 0.5)


def test_what_was_missing_is_told_only_where_it_is_known() -> None:
    log = of(small_log())
    for notes in ({}, {"rows": 8, "missing": {"o:renamed": 2}}):
        assert "missing" not in data_card(log, "small", notes).features["feature 0"]
    assert data_card(log, "small", {"rows": 8, "missing": {}}).features["feature 0"]["missing"] == 0


def test_quantiles_of_a_large_log_are_those_of_rows_evenly_spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refork.replay.data_card.MOST_ROWS", 5)
    features = data_card(of(small_log()), "small", {}).features["feature 0"]  # of 0 ... 8: 0, 2, 4, 6, 8
    assert [features[name] for name in ("p25", "median", "p75", "max")] == [2, 4, 6, 8]


def test_the_split_is_that_of_a_job() -> None:
    log = log_for("discrete", episodes=100)
    expected = [len(part) for part in split_by_patient(log, LogOptions().fractions, LogOptions().log_seed)]
    assert list(data_card(log, "log", {}).split.values()) == expected


@pytest.mark.parametrize(("episodes", "warned"), [(190, True), (200, False)])
def test_too_few_episodes_to_weigh_are_warned_of(episodes: int, warned: bool) -> None:
    log = log_for("discrete", episodes=episodes)
    card = data_card(replace(log, patients=np.arange(episodes)), "log", {})
    assert card.split["held out"] == (28 if warned else 30)
    expected = "28 of 190 episodes are held out: no estimate by weights can be supported"
    assert any(warning.startswith(expected) for warning in card.warnings) == warned


def test_known_behaviour_is_a_share() -> None:
    log = of(small_log())
    behaviour = log.behaviour.copy()
    behaviour[:3] = np.nan
    assert data_card(replace(log, behaviour=behaviour), "small", {}).behaviour_known == 0.5


def test_states_are_counted() -> None:
    log = of(small_log())
    spec = replace(log.spec, observation=replace(log.spec.observation, kind="states", size=20))
    found = data_card(replace(log, spec=spec, observations=np.arange(9, dtype=np.int32)), "small", {})
    assert found.features == {"states": {"declared": 20, "seen": 9}}
