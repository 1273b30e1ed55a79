from dataclasses import replace

import numpy as np
import pytest
from refork.envs.forkable import Reward
from refork.replay.fork_points import (
    RULES,
    choose,
    cost_aware,
    entropy,
    every_kth,
    late,
    pass_rate,
    points,
    uniform,
)
from refork.replay.trajectory import Decision, Trajectory


def _rollout(*entropies: float) -> Trajectory:
    return Trajectory("t", 0, 0, tuple(Decision("s", None, 0, -0.7, 0.5, e) for e in entropies), Reward(1.0))


def test_uniform_weighs_all_alike() -> None:
    assert uniform(_rollout(0.1, 0.9, 0.0), ()).tolist() == [1.0, 1.0, 1.0]


def test_entropy_is_divided_by_the_steps_still_to_be_played() -> None:
    weights = entropy(_rollout(0.6, 0.2, 0.1), ())
    assert weights == pytest.approx([0.6001 / 3, 0.2001 / 2, 0.1001], abs=1e-12)


def test_cost_aware_is_doubt_over_the_root_of_what_remains() -> None:
    decisions = tuple(Decision("s", None, 0, 0.0, p, 0.1) for p in (0.5, 1.0, 0.2))
    weights = cost_aware(Trajectory("t", 0, 0, decisions, Reward(1.0)), ())
    assert weights == pytest.approx([0.5001 / 3**0.5, 0.0001 / 2**0.5, 0.8001])


def _group(*values: float) -> list[Trajectory]:
    return [replace(_rollout(*[0.1] * 16), attempt=k, outcome=Reward(v)) for k, v in enumerate(values)]


def test_pass_rate_goes_to_where_a_hard_task_is_passed_half_the_time() -> None:
    """One success in four: its chance goes from 1/4 at the start to 1 at the end, so 1/2 after a third of 16 steps."""
    group = _group(1.0, 0.0, 0.0, 0.0)
    weights = pass_rate(group[0], group)
    assert weights.argmax() == 5
    assert weights[5] == pytest.approx(np.exp(-0.5 * ((5 - 16 / 3) / 2) ** 2))
    assert not pass_rate(group[1], group).any()  # a failure of a hard task


def test_pass_rate_makes_easy_tasks_harder_and_leaves_the_decided_alone() -> None:
    group = _group(1.0, 1.0, 1.0, 0.0)
    assert pass_rate(group[3], group).argmax() == 5
    assert not pass_rate(group[0], group).any()
    assert not pass_rate(_group(1.0)[0], _group(1.0, 1.0)).any()
    assert choose("pass_rate", group[0], group, 3, np.random.default_rng(0)) == ()


def test_bisect_goes_where_the_answers_lead() -> None:
    """The decision that lost it is the tenth of sixteen: what is forked up to it succeeds."""
    search = points("bisect", _rollout(*[0.1] * 16), (), 12, np.random.default_rng(0))
    seen = [next(search).step]
    for _ in range(11):
        seen.append(search.send(seen[-1] <= 9).step)
    with pytest.raises(StopIteration):
        search.send(True)
    assert {9, 10} <= set(seen[3:])
    assert set(seen[-3:]) <= {8, 9, 10, 11}


def test_what_was_not_judged_is_asked_again() -> None:
    search = points("bisect", _rollout(*[0.1] * 16), (), 2, np.random.default_rng(0))
    assert next(search).step == search.send(None).step
    assert list(points("bisect", _rollout(), (), 3, np.random.default_rng(0))) == []


def test_late_prefers_the_tail_whatever_the_entropy() -> None:
    assert late(_rollout(0.6, 0.0, 0.1), ()).tolist() == [1 / 3, 1 / 2, 1.0]


def test_every_kth_begins_with_the_first() -> None:
    assert [(p.step, p.probability) for p in every_kth(_rollout(0.1, 0.2, 0.0, 0.3), 3)] == [(0, 1.0), (3, 1.0)]
    assert every_kth(_rollout(), 1) == ()


@pytest.mark.parametrize("rule", ["cost_aware", "entropy", "late", "uniform"])
def test_points_are_distinct_ordered_and_carry_the_probability_of_one_draw(rule: str) -> None:
    rollout = _rollout(0.5, 0.1, 0.4, 0.3, 0.2)
    weights = RULES[rule](rollout, ())
    for seed in range(20):
        points = choose(rule, rollout, (), 3, np.random.default_rng(seed))
        steps = [p.step for p in points]
        assert len(points) == 3
        assert steps == sorted(set(steps))
        assert [p.probability for p in points] == pytest.approx((weights / weights.sum())[steps])


def test_draws_follow_the_weights() -> None:
    rollout = _rollout(0.3, 0.3, 0.3)  # weights 1/3, 1/2, 1 over 11/6
    rng = np.random.default_rng(0)
    drawn = [choose("entropy", rollout, (), 1, rng)[0].step for _ in range(4000)]
    assert np.bincount(drawn) / 4000 == pytest.approx(np.array([2, 3, 6]) / 11, abs=4 * 0.5 / 4000**0.5)


@pytest.mark.parametrize("rule", ["cost_aware", "entropy", "uniform"])
def test_more_than_there_are_gives_all_and_none_gives_none(rule: str) -> None:
    rng = np.random.default_rng(0)
    assert [p.step for p in choose(rule, _rollout(0.1, 0.0), (), 9, rng)] == [0, 1]
    assert choose(rule, _rollout(0.1, 0.0), (), 0, rng) == ()
    assert choose(rule, _rollout(), (), 3, rng) == ()


def test_an_unknown_rule_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no fork-point rule 'entorpy'; there are: .*entropy"):
        choose("entorpy", _rollout(0.1), (), 1, np.random.default_rng(0))
