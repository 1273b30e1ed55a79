import numpy as np
import pytest
from refork.envs.forkable import Reward
from refork.replay.fork_points import RULES, choose, entropy, every_kth, late, uniform
from refork.replay.trajectory import Decision, Trajectory


def _rollout(*entropies: float) -> Trajectory:
    return Trajectory("t", 0, 0, tuple(Decision("s", None, 0, -0.7, 0.5, e) for e in entropies), Reward(1.0))


def test_uniform_weighs_all_alike() -> None:
    assert uniform(_rollout(0.1, 0.9, 0.0), ()).tolist() == [1.0, 1.0, 1.0]


def test_entropy_is_divided_by_the_steps_still_to_be_played() -> None:
    weights = entropy(_rollout(0.6, 0.2, 0.1), ())
    assert weights == pytest.approx([0.6001 / 3, 0.2001 / 2, 0.1001], abs=1e-12)


def test_late_prefers_the_tail_whatever_the_entropy() -> None:
    assert late(_rollout(0.6, 0.0, 0.1), ()).tolist() == [1 / 3, 1 / 2, 1.0]


def test_every_kth_begins_with_the_first() -> None:
    assert [(p.step, p.probability) for p in every_kth(_rollout(0.1, 0.2, 0.0, 0.3), 3)] == [(0, 1.0), (3, 1.0)]
    assert every_kth(_rollout(), 1) == ()


@pytest.mark.parametrize("rule", sorted(RULES))
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


@pytest.mark.parametrize("rule", sorted(RULES))
def test_more_than_there_are_gives_all_and_none_gives_none(rule: str) -> None:
    rng = np.random.default_rng(0)
    assert [p.step for p in choose(rule, _rollout(0.1, 0.0), (), 9, rng)] == [0, 1]
    assert choose(rule, _rollout(0.1, 0.0), (), 0, rng) == ()
    assert choose(rule, _rollout(), (), 3, rng) == ()


def test_an_unknown_rule_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no fork-point rule 'entorpy'; there are: .*entropy"):
        choose("entorpy", _rollout(0.1), (), 1, np.random.default_rng(0))
