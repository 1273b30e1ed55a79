"""Hyper-parameters are chosen from logged data alone."""

from dataclasses import replace

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.trainers import fqe
from refork.trainers.selection import joined, select

from tests.trainers.test_fqe import always, corridor


def test_the_candidate_of_the_greatest_estimated_mean_is_chosen_and_the_rule_is_said() -> None:
    choice = select(
        {"low": [always(0), always(0)], "mixed": [always(0), always(1)], "high": [always(1)] * 2}, corridor()
    )
    assert choice.name == "high"
    assert 2.0 < choice.scores["high"].value < 3.0
    assert len(choice.scores["mixed"].by_seed) == 2
    assert "FQE (shrunk table) on 50 validation episodes, gamma 1" in choice.rule


def test_training_patients_speak_too_but_never_of_themselves() -> None:
    log = corridor(episodes=60)
    training, validation = log.subset(np.arange(40)), log.subset(np.arange(40, 60))
    both = joined(training, validation)
    assert all(
        np.array_equal(getattr(both, name), getattr(log, name)) for name in ("observations", "rewards", "starts")
    )
    choice = select({"low": [always(0)], "high": [always(1)]}, validation, training=training, gamma=0.5)
    assert choice.name == "high"
    assert "on 60 training and validation, cross-fitted, episodes, gamma 0.5" in choice.rule


def test_ties_go_to_the_first() -> None:
    assert select({"b": [always(1)], "a": [always(1)]}, corridor()).name == "b"


def test_nothing_to_choose_from_is_bad_input() -> None:
    with pytest.raises(BadInput, match="at least one policy"):
        select({"a": []}, corridor())
    with pytest.raises(BadInput, match=r"validation part is empty.*fractions"):
        select({"a": [always(1)]}, corridor().subset(np.zeros(0, np.int64)))


def test_one_that_has_not_settled_is_chosen_all_the_same_and_an_impossible_value_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the unit of the log: 3 is the most that can be had."""
    log = corridor()
    plain = fqe.evaluate(log, [always(0), always(1)], 1.0, method="table")

    def found(*_: object, **__: object) -> list[fqe.FQE]:
        return [
            plain[0],
            replace(plain[1], converged=False),
            replace(plain[1], starts=plain[1].starts + 90, highest=99),
        ]

    monkeypatch.setattr(fqe, "evaluate", found)
    choice = select({"settled": [always(0)], "unsettled": [always(1)], "impossible": [always(1)]}, log)
    assert choice.name == "unsettled"
    assert [score.possible for score in choice.scores.values()] == [True, True, False]
    assert [score.converged for score in choice.scores.values()] == [True, False, True]
