from dataclasses import replace

import pytest
from refork.trainers.metrics import summarise

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
            "resolved": 1 / 3,
            "return_mean": 0.5,
            "policy_entropy": 0.0,
        }
    )


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
