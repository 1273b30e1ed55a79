from dataclasses import replace

import pytest
from refork.trainers.metrics import fork_gaps, summarise

from tests.trainers.made import branch, group, main


def test_numbers_of_an_update_by_hand() -> None:
    mains = [replace(main(0, 1.0), steps_executed=2), main(1, 0.0), main(2, "infra"), main(3, "timeout")]
    lost = replace(branch(5, 0, 0, "infra"), info={"state_mismatch": True})
    experience = group(mains, [replace(branch(4, 0, 1, 1.0), steps_executed=1), lost])
    assert summarise([experience, group([main(0, 0.5)])]) == pytest.approx(
        {
            "trajectories": 7,
            "branches": 2,
            "steps": 4 * 3 + 2 + 3 + 3,
            "steps_executed": 3,
            "infra_errors": 2,
            "timeouts": 1,
            "state_mismatches": 1,
            "rollout_seconds": 0.0,
            "cache_hits": 1 - 3 / 20,
            "fork_step_share": 5 / 20,
            "fork_gain": 0.0,
            "fork_loss": 0.0,
            "resolved": 1 / 3,
            "return_mean": 0.5,
            "policy_entropy": 0.0,
        }
    )


def test_what_forks_bought_is_told_of_judged_branches_with_another_action() -> None:
    better, worse, same = branch(4, 1, 1, 1.0), branch(5, 0, 1, 0.0), branch(6, 0, 2, 1.0)
    masked, of_masked = branch(7, 0, 1, "infra"), branch(8, 2, 1, 1.0)
    replayed = replace(branch(9, 1, 1, 1.0), origin=replace(better.origin, same_action=True))
    mains = [main(0, 1.0), main(1, 0.0), main(2, "infra")]
    experience = group(mains, [better, worse, same, masked, of_masked, replayed])
    assert sorted(fork_gaps([experience])) == [-1.0, 0.0, 1.0]
    told = summarise([experience])
    assert (told["fork_gain"], told["fork_loss"]) == pytest.approx((1 / 3, 1 / 3))
    assert "fork_gain" not in summarise([group(mains)])


def test_what_is_not_known_is_left_out() -> None:
    assert summarise([]) == {
        "trajectories": 0,
        "branches": 0,
        "steps": 0,
        "steps_executed": 0,
        "infra_errors": 0,
        "timeouts": 0,
        "state_mismatches": 0,
        "rollout_seconds": 0,
    }
    assert "resolved" not in summarise([group([main(0, "infra")])])
