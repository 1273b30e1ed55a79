"""Log folders: sound ones pass, and each defect is named with its row."""

from dataclasses import replace

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogArrays
from refork.replay.log_checks import check_log
from refork.replay.transitions import Transitions
from refork.replay.validation import check_learnable

from tests.trainers.logs import log_for


@pytest.mark.parametrize("kind", ["discrete", "continuous", "factored_discrete", "factored_continuous"])
def test_sound_logs_pass(kind: str) -> None:
    check_log(log_for(kind), "log")


def put(log: Transitions, name: str, place: object, value: object) -> LogArrays:
    """The log with one other value."""
    array = getattr(log, name).copy()
    array[place] = value
    return replace(log, **{name: array})


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("observations", (8, 1), np.nan, "log: row 8, column 'observations': found nothing"),
        ("actions", 7, 4, "log: row 7, column 'actions': found 4, expected an action 0 ... 3 (4 are declared)"),
        ("rewards", 5, np.inf, "log: row 5, column 'rewards': found inf"),
        ("dt", 2, np.nan, "log: row 2, column 'dt'"),
        ("dt", 2, 0.0, "log: row 2, column 'dt': found 0, expected a time above 0"),
        ("behaviour", 3, 1.5, "log: row 3, column 'behaviour': found 1.5, expected a probability above 0, at most 1"),
        ("behaviour", 3, 0.0, "log: row 3, column 'behaviour': found 0, expected a probability above 0"),
        ("terminated", 5, False, "log: row 5, column 'terminated': found neither an end nor a cut"),
        ("truncated", 7, True, "log: row 7, column 'terminated': found an end, expected none before the last"),
        ("starts", 2, 6, "log: row 2, column 'starts': found 6, expected a rising value"),
        ("starts", -1, 20, "log: starts.npy: found 0 ... 20, expected 0 ... 24, the number of rewards"),
    ],
)
def test_a_defect_is_named(name: str, place: object, value: object, message: str) -> None:
    with pytest.raises(BadInput) as fault:
        check_log(put(log_for("discrete", episodes=4), name, place, value), "log")
    assert message in str(fault.value)


def test_arrays_of_a_wrong_shape_are_named() -> None:
    log = log_for("discrete", episodes=4)
    with pytest.raises(BadInput, match=r"observations.npy: found shape \(27, 3\), expected \(28, 3\)"):
        check_log(replace(log, observations=log.observations[:-1]), "log")


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [("rewards", "U3", "real"), ("patients", "f8", "whole"), ("actions", "f4", "whole"), ("terminated", "i8", "truth")],
)
def test_arrays_of_a_wrong_kind_are_named(name: str, kind: str, expected: str) -> None:
    log = log_for("discrete", episodes=4)
    with pytest.raises(BadInput, match=f"log: {name}.npy: found .*, expected {expected}"):
        check_log(replace(log, **{name: getattr(log, name).astype(kind)}), "log")


def test_an_action_that_is_not_allowed_is_named() -> None:
    log = log_for("discrete", episodes=4)
    allowed = np.ones((len(log.observations), 1, 4), bool)
    masked = replace(log, allowed=allowed)
    check_log(masked, "log")
    allowed[13 + 2, 0, log.actions[13, 0]] = False  # transition 13 is of episode 2
    with pytest.raises(BadInput, match=r"log: row 13, column 'actions': found action \d, expected one that is allowed"):
        check_log(masked, "log")


def test_doses_beyond_their_bounds_are_named() -> None:
    log = put(log_for("factored_continuous", episodes=4), "actions", (6, 2, 1), 2.5)
    with pytest.raises(BadInput, match=r"row 6, column 'actions': found 2.5, expected a value within .* \[0, 2\]"):
        check_log(log, "log")


def test_training_on_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="train: no transitions"):
        check_learnable(log_for("discrete"), np.zeros(0, np.int64), "train")


def test_training_on_one_action_is_refused() -> None:
    log = log_for("factored_discrete")
    same = replace(log, actions=np.broadcast_to(np.array([1, 0, 3]), log.actions.shape))
    with pytest.raises(BadInput, match=r"all 180 logged actions are equal \(\[1, 0, 3\]\)"):
        check_learnable(same, np.arange(180), "train")


def test_training_on_one_reward_is_refused_unless_lengths_tell_policies_apart() -> None:
    log = log_for("discrete", episodes=3)
    same = replace(log, rewards=np.ones(18, np.float32))
    with pytest.raises(BadInput, match="all 18 rewards are 1: every policy is worth the same"):
        check_learnable(same, np.arange(18), "train")
    uneven = replace(same, starts=np.array([0, 4, 12, 18]), terminated=np.isin(np.arange(18), [3, 11]))
    check_learnable(uneven, np.arange(18), "train")
    with pytest.raises(BadInput, match="all 18 rewards are 0"):
        check_learnable(replace(uneven, rewards=np.zeros(18, np.float32)), np.arange(18), "train")
