"""The data card counts what is there, and warns of what makes a log hard to learn from."""

from dataclasses import replace

import numpy as np
import pytest
from refork.replay.data_card import data_card
from refork.replay.transitions import digest, of

from tests.replay.test_transitions import small_log


def test_the_card_counts() -> None:
    log = of(small_log())
    card = data_card(log, "small", {"missing": {"o:x": 2}, "missing_policy": "mask", "both_ends": 1})
    assert (card.patients, card.episodes, card.transitions) == (2, 3, 6)
    assert card.lengths == {"min": 1, "p25": 1.5, "median": 2, "p75": 2.5, "max": 3}
    assert card.actions == {"decision maker 0": [3, 3]}
    assert card.ends == {"terminated": 2, "truncated": 1, "both (terminated wins)": 1}
    assert card.dt["other than 1"] == 1 / 6
    assert card.rewards["mean return"] == 7
    assert card.behaviour_known == 1
    assert card.features == {"feature 0": {"min": 0, "mean": 4, "sd": pytest.approx((60 / 9) ** 0.5), "max": 8}}
    assert card.content == digest(log)
    assert card.missing == {"o:x": 2}
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
