"""Cost-aware sampling: which steps are kept, with what weight, and that the mean over draws is what was sampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.estimators.cost_aware import keep_probabilities
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import experiences, grown, main

COST_AWARE, GIGPO = ESTIMATORS["cost_aware"], ESTIMATORS["gigpo"]
DRAWS = 10_000


def _advantages(experience: TaskExperience) -> Credit:
    return Credit({"t/0/0": np.array([0.5, -1.0, 0.0, 0.25]), "t/0/1": np.array([0.1, 2.0])})


EXPERIENCE = grown([main(0, "rabc", 1.0), main(1, "rd", 0.0)])


def test_probabilities_by_hand() -> None:
    kept = keep_probabilities(_advantages(EXPERIENCE), 0.4)
    worth = np.array([0.5 / 2, 1 / 3**0.5, 0.0, 0.25, 0.1 / 2**0.5, 2.0])
    expected = np.minimum(1.0, 0.4 * 5 * worth / worth.sum())  # five steps have an advantage
    assert np.concatenate([kept["t/0/0"], kept["t/0/1"]]) == pytest.approx(expected)


@pytest.mark.parametrize("clip", [1e9, 3.0])
def test_the_mean_over_draws_is_the_advantage_times_what_the_clip_leaves(clip: float) -> None:
    kept = keep_probabilities(_advantages(EXPERIENCE), 0.4)
    draws = [COST_AWARE(EXPERIENCE, base=_advantages, share=0.4, weight_clip=clip, seed=s) for s in range(DRAWS)]
    for key, advantages in _advantages(EXPERIENCE).values.items():
        found = np.stack([draw.values[key] for draw in draws])
        error = found.std(axis=0) / DRAWS**0.5
        expected = advantages * np.minimum(1.0, clip * kept[key])
        assert (np.abs(found.mean(axis=0) - expected) <= 4 * error + 1e-12).all()


def test_draws_follow_seed_and_key_alone() -> None:
    first, again = (COST_AWARE(EXPERIENCE, base=_advantages, share=0.4, seed=3).values for _ in range(2))
    assert all((first[key] == again[key]).all() for key in first)
    other = [COST_AWARE(EXPERIENCE, base=_advantages, share=0.4, seed=s).values["t/0/0"].tolist() for s in range(20)]
    assert len({tuple(values) for values in other}) > 1


@settings(max_examples=60, deadline=None)
@given(experience=experiences())
def test_kept_steps_are_those_of_the_base_weighted_and_all_are_counted(experience: TaskExperience) -> None:
    base, credit = GIGPO(experience), COST_AWARE(experience, base=GIGPO, share=0.5, weight_clip=4.0)
    kept = dropped = 0
    for key, values in base.values.items():
        taken = credit.values[key] != 0
        assert (values[taken] != 0).all()
        assert (np.abs(credit.values[key]) <= 4.0 * np.abs(values) + 1e-12).all()
        assert (np.abs(credit.values[key][taken]) >= np.abs(values[taken]) - 1e-12).all()
        kept, dropped = kept + int(taken.sum()), dropped + int((~taken & (values != 0)).sum())
    assert (credit.counts["sampled_steps"], credit.counts["dropped_steps"]) == (kept, dropped)
    assert base.counts.items() <= credit.counts.items()


def test_equal_trajectories_are_drawn_apart() -> None:
    def alike(experience: TaskExperience) -> Credit:
        return Credit({"t/0/0": np.array([0.5, -1.0]), "t/0/1": np.array([0.5, -1.0])})

    draws = [COST_AWARE(EXPERIENCE, base=alike, seed=seed).values for seed in range(20)]
    assert any((draw["t/0/0"] != draw["t/0/1"]).any() for draw in draws)


def test_rounding_errors_are_not_steps_to_share() -> None:
    def dusty(experience: TaskExperience) -> Credit:
        return Credit({"t/0/0": np.array([1e-17, 1e-17, 1e-17, 1.0])})

    draws = [COST_AWARE(EXPERIENCE, base=dusty, share=0.5, seed=seed).values["t/0/0"][-1] != 0 for seed in range(200)]
    assert np.mean(draws) == pytest.approx(0.5, abs=4 * 0.5 / 200**0.5)


def test_with_everything_kept_equal_steps_are_untouched() -> None:
    def last_ones(experience: TaskExperience) -> Credit:
        return Credit({"t/0/0": np.array([0.0, 0.0, 0.0, 1.0]), "t/0/1": np.array([0.0, -1.0])})

    found = COST_AWARE(EXPERIENCE, base=last_ones, share=1.0).values
    assert found["t/0/0"].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert found["t/0/1"].tolist() == [0.0, -1.0]
