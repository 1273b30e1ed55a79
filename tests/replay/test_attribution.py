"""The search for the decisive decision: exact beliefs, log2 of the length, and as right as it says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refork.replay.attribution import NEVER, Answers, next_state, posterior


def _search(decisive: int, steps: int, before: float, after: float, rng: np.random.Generator, most: int) -> Answers:
    answers = Answers.none(steps)
    while posterior(answers).max() < 0.9 and answers.asked < most:
        state = next_state(answers)
        answers = answers.add(state, rng.random() < (before if state <= decisive else after))
    return answers


def test_nothing_asked_leaves_the_prior() -> None:
    assert posterior(Answers.none(4)) == pytest.approx([(1 - NEVER) / 4] * 4 + [NEVER])


def test_the_belief_after_one_success_is_that_of_bayes() -> None:
    """From state 1 of 2: rate 1/2 a priori before the decisive decision, 1/41 after it, 1/401 where all is lost."""
    belief = posterior(Answers.none(2).add(1, success=True))
    weights = np.array([0.45 / 41, 0.45 / 2, 0.1 / 401])
    assert belief == pytest.approx(weights / weights.sum())


def test_the_belief_after_success_and_failures_is_that_of_bayes() -> None:
    """Success from state 0, two failures from state 2: beta integrals by hand."""
    answers = Answers.none(3).add(0, success=True).add(2, success=False).add(2, success=False)
    lost_after = 0.5 * (40 / 41) * (44 / 45)  # one success before; two failures after
    lost_before = 1 / 12  # B(2, 3) / B(1, 1): all before the last decision
    never = (1 / 401) * (400 / 405) * (404 / 409)  # all three after
    weights = np.array([0.3 * lost_after, 0.3 * lost_after, 0.3 * lost_before, 0.1 * never])
    assert posterior(answers) == pytest.approx(weights / weights.sum())


@pytest.mark.parametrize("steps", [8, 64, 256])
def test_certain_answers_are_bisected(steps: int) -> None:
    rng = np.random.default_rng(0)
    for decisive in rng.choice(steps, 8, replace=False):
        answers = _search(int(decisive), steps, 1.0, 0.0, rng, 200)
        assert posterior(answers).argmax() == decisive
        assert answers.asked <= np.log2(steps) + 8


@pytest.mark.parametrize(("before", "after"), [(0.5, 0.0), (0.3, 0.02)])
def test_under_noise_it_is_right_as_often_as_it_says(before: float, after: float) -> None:
    rng, right, asked = np.random.default_rng(1), 0, []
    for _ in range(60):
        decisive = int(rng.integers(20))
        answers = _search(decisive, 20, before, after, rng, 400)
        right += int(posterior(answers).argmax() == decisive)
        asked.append(answers.asked)
    assert right >= 48  # .9 of 60 within 2.6 standard errors
    assert np.median(asked) < 90  # 8 from every state would be 160


def test_a_policy_that_never_succeeds_is_said() -> None:
    answers = _search(-1, 20, 0.0, 0.0, np.random.default_rng(2), 400)
    assert posterior(answers).argmax() == 20
    assert answers.asked < 160  # of a rate of .02 nobody can tell sooner


def test_of_states_that_tell_as_much_the_cheapest_is_asked() -> None:
    assert next_state(Answers.none(1)) == 0
    assert next_state(Answers.none(9)) in (3, 4, 5)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_a_belief_is_one_whatever_is_answered(given: list[tuple[int, bool]]) -> None:
    answers = Answers.none(7)
    for step, success in given:
        answers = answers.add(step, success)
    belief = posterior(answers)
    assert belief.sum() == pytest.approx(1.0)
    assert (belief >= 0).all()
    assert 0 <= next_state(answers) < 7
    assert answers.asked == len(given)


def test_the_order_of_answers_does_not_matter() -> None:
    rows = [(0, True), (3, False), (2, True), (3, False)]
    one, other = Answers.none(5), Answers.none(5)
    for row, reverse in zip(rows, rows[::-1], strict=True):
        one, other = one.add(*row), other.add(*reverse)
    assert posterior(one).tolist() == posterior(other).tolist()


def test_without_decisions_there_is_none() -> None:
    with pytest.raises(ValueError, match="without decisions"):
        Answers.none(0)
