"""CRR's estimator by hand, its masks and counts, and the identities that tie it to others."""

from dataclasses import replace

import numpy as np
import pytest
from refork.trainers.advantages import OUTCOME
from refork.trainers.batch import make_batch
from refork.trainers.crr.advantages import PAPER, CrrForm, crr_credit, revisions

from tests.trainers.made import branch, group, main


def test_the_tuned_form_by_hand() -> None:
    mains = [main(0, 1.0, (0.5, 0.25, 0.5)), main(1, 0.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 1, 0.0)]), CrrForm())
    # not forked: rloo 1 - 0; forked: (1 - 0.25) (1 - 0)
    assert credit.values["t/0/0"].tolist() == [1.0, 0.75, 1.0]
    assert credit.values["t/0/1"].tolist() == [-1.0] * 3
    # own step: 0.25 (0 - 1); later: 0 - mean of the mains
    assert credit.values["t/0/2"].tolist() == [-0.25, -0.5]
    assert credit.counts["forks"] == credit.counts["informative_forks"] == 1


def test_the_papers_plain_form_by_hand() -> None:
    mains = [main(0, 1.0, (0.5, 0.25, 0.5)), main(1, 0.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 1, 0.0), branch(3, 1, 0, 1.0)]), PAPER)
    assert credit.values["t/0/0"].tolist() == [0.0, 1.0, 0.0]
    assert credit.values["t/0/1"].tolist() == [-1.0, 0.0, 0.0]
    assert credit.values["t/0/2"].tolist() == [0.0, 0.0]
    assert credit.values["t/0/3"].tolist() == [0.0, 0.0, 0.0]


def test_means_over_replays_and_alternatives() -> None:
    mains = [main(0, 1.0, (0.5, 0.4, 0.5)), main(1, 0.0)]
    branches = [branch(2, 0, 1, 0.0), branch(3, 0, 1, 1.0), branch(4, 0, 1, 0.5, same=True)]
    credit = crr_credit(group(mains, branches), CrrForm())
    assert credit.values["t/0/0"][1] == pytest.approx((1 - 0.4) * ((1.0 + 0.5) / 2 - (0.0 + 1.0) / 2))
    assert credit.values["t/0/2"][0] == pytest.approx(0.4 * (0.0 - 0.75) / 2)
    assert credit.values["t/0/3"][0] == pytest.approx(0.4 * (1.0 - 0.75) / 2)
    # a replay's first decision is its parent's, which is counted there already
    assert credit.values["t/0/4"].tolist() == [0.0, 0.5 - 0.5]


@pytest.mark.parametrize(("mirror", "expected"), [("probability", -0.3), ("importance", -0.7), ("none", 0.0)])
def test_weights_of_the_mirrored_differential(mirror: str, expected: float) -> None:
    mains = [main(0, 1.0, (0.5, 0.3, 0.5)), main(1, 0.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 1, 0.0)]), CrrForm(mirror=mirror))  # type: ignore[arg-type]
    assert credit.values["t/0/2"][0] == pytest.approx(expected)


@pytest.mark.parametrize(("selection", "weight"), [(1 / 3, 1.0), (2 / 3, 0.5), (1 / 6, 2.0), (1e-6, 5.0)])
def test_weighted_selection_is_uniform_over_chosen_and_clipped(selection: float, weight: float) -> None:
    mains = [main(0, 1.0), main(1, 0.0)]
    experience = group(mains, [branch(2, 0, 1, 0.0)], selection)
    credit = crr_credit(experience, CrrForm(selection="weighted"))
    assert credit.values["t/0/0"][1] == pytest.approx(weight * 0.5)
    assert credit.values["t/0/2"][0] == pytest.approx(weight * -0.5)
    assert crr_credit(experience, CrrForm()).values["t/0/0"][1] == 0.5


@pytest.mark.parametrize("failure", ["infra", "timeout"])
def test_a_pair_with_an_unjudged_side_is_masked_and_counted(failure: str) -> None:
    mains = [main(0, 1.0), main(1, 0.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 1, failure), branch(3, 0, 2, 0.0)]), CrrForm())
    assert credit.values["t/0/0"].tolist() == [1.0, 1.0, 0.5]  # step 1 keeps the outcome advantage
    assert credit.values["t/0/2"].tolist() == [0.0, 0.0]
    assert (credit.counts["masked_pairs"], credit.counts["masked_forks"], credit.counts["forks"]) == (1, 1, 2)


def test_an_unjudged_branch_beside_a_judged_one_is_left_out_of_the_mean() -> None:
    mains = [main(0, 1.0), main(1, 0.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 1, "infra"), branch(3, 0, 1, 0.0)]), CrrForm())
    assert credit.values["t/0/0"][1] == 0.5
    assert (credit.counts["masked_pairs"], credit.counts["masked_forks"]) == (1, 0)


def test_a_branch_lost_before_its_first_decision_is_no_obstacle() -> None:
    lost = branch(2, 0, 1, "infra", length=1)
    assert lost.steps == 0
    credit = crr_credit(group([main(0, 1.0), main(1, 0.0)], [lost]), CrrForm())
    assert credit.values["t/0/2"].tolist() == []


def test_without_differences_there_is_nothing_to_learn() -> None:
    mains = [main(0, 1.0), main(1, 1.0)]
    credit = crr_credit(group(mains, [branch(2, 0, 0, 1.0), branch(3, 1, 1, 1.0)]), CrrForm())
    assert all((v == 0.0).all() for v in credit.values.values())
    assert np.isfinite(np.concatenate(list(credit.values.values()))).all()
    assert (credit.counts["informative_forks"], credit.counts["forks"]) == (0, 2)


def test_counts_are_there_when_they_are_zero() -> None:
    assert crr_credit(group([main(0, 1.0), main(1, 0.0)]), CrrForm()).counts == {
        "zero_variance_groups": 0,
        "skipped_points": 0,
        "forks": 0,
        "masked_pairs": 0,
        "masked_forks": 0,
        "informative_forks": 0,
    }


def test_two_forks_of_one_decision_are_averaged() -> None:
    experience = group([main(0, 1.0), main(1, 0.0)], [branch(2, 0, 1, 0.0)])
    other = group(experience.mains, [branch(3, 0, 1, 1.0)])
    both = type(experience)(
        "t", 0, experience.mains, experience.branches + other.branches, experience.forks + other.forks
    )
    assert crr_credit(both, CrrForm()).values["t/0/0"][1] == 0.25


def test_forking_at_the_start_is_the_leave_one_out_baseline() -> None:
    """Continuations from the start that returned what the others of a group did: R_i - mean of the others."""
    values = np.array([1.0, 0.0, 0.25, 0.5])
    mains = [main(i, v) for i, v in enumerate(values)]
    branches = [
        branch(10 * (i + 1) + j, i, 0, values[j]) for i in range(4) for j in range(4) if j != i
    ]  # numbers only need to be distinct
    credit = crr_credit(group(mains, branches), PAPER)
    for i, value in enumerate(values):
        assert credit.values[f"t/0/{i}"][0] == pytest.approx(OUTCOME["rloo"](value, values), abs=1e-12)


def test_with_exact_values_everywhere_the_advantages_telescope() -> None:
    """All steps selected: sum of A_t = R - V(s_0), for a chain of decisions that must all be right."""
    right = np.array([0.3, 0.6, 0.8])  # probability of the right action at each step
    values = np.append(right[::-1].cumprod()[::-1], 1.0)  # V(s_t) while all was right
    rollout = main(0, 1.0, right)
    branches = []
    for t in range(3):
        q = values[t + 1]
        branches.append(branch(2 * t + 1, 0, t, 2 * q - 1.0, same=True))  # mean with the rollout's own 1.0: exactly Q
        branches.append(branch(2 * t + 2, 0, t, 0.0))  # another action: the value is 0
    advantages = crr_credit(group([rollout], branches), CrrForm(outcome="none")).values["t/0/0"]
    assert advantages == pytest.approx(values[1:] - values[:-1], abs=1e-12)
    assert advantages.sum() == pytest.approx(1.0 - values[0], abs=1e-12)


def test_revisions_are_the_first_steps_of_branches_that_returned_more() -> None:
    """A failure corrected, the same again, a success spoilt, and branches or rollouts that were not judged."""
    mains = [main(0, 1.0), main(1, 0.0), main(2, "infra")]
    better, same, spoilt = branch(3, 1, 1, 1.0), branch(4, 1, 1, 0.0), branch(5, 0, 1, 0.0)
    others = [branch(6, 1, 0, "infra"), branch(7, 2, 0, 1.0), branch(8, 1, 2, 1.0, same=True)]
    found = revisions(group(mains, [better, same, spoilt, *others]))
    assert {key: rows.tolist() for key, rows in found.items()} == {"t/0/3": [True, False]}


def test_a_revision_is_learnt_even_without_an_advantage() -> None:
    """With no mirror and nothing from branches only the forked decision and the revision are in the batch."""
    experience = group([main(0, 1.0), main(1, 0.0)], [branch(2, 1, 1, 1.0)])
    seen = {"features": np.zeros((2, 1), np.float32), "mask": np.ones(2, bool)}
    mains, branches = (
        [replace(t, decisions=tuple(replace(d, observation=seen) for d in t.decisions)) for t in own]
        for own in (experience.mains, experience.branches)
    )
    experience = replace(experience, mains=tuple(mains), branches=tuple(branches))
    credit = replace(crr_credit(experience, PAPER), targets=revisions(experience))
    batch = make_batch([experience], [credit])
    assert batch is not None
    assert batch.target.tolist() == [False, True]
    assert batch.branch.tolist() == [False, True]
    assert batch.advantages.tolist() == [-1.0, 0.0]
