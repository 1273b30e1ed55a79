"""Behaviour probabilities: 1 is not "unknown"; how well a model of them is calibrated."""

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.replay.ope.calibration import calibration, expected_error, reliability
from refork.replay.ope.recorded import check_certainty


def test_unknown_is_not_one() -> None:
    ones, fair = np.ones(40), np.full(40, 0.5)
    with pytest.raises(BadInput, match=r"40 of 40 .* exactly 1, but .* 0\.50 on average: leave unknown ones empty"):
        check_certainty(ones, fair)
    check_certainty(ones, np.full(40, 0.95))
    check_certainty(fair, fair)


def test_calibration_is_counted() -> None:
    said = np.array([[0.75, 0.25]] * 4)
    actions = np.array([0, 0, 0, 1])
    found = calibration(said, actions)
    assert found.nll == pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4)
    assert found.nll_marginal == pytest.approx(found.nll)
    assert found.ece == pytest.approx(0)
    assert [(r.low, r.count, r.said, r.seen) for r in found.table] == [(0.2, 4, 0.25, 0.25), (0.7, 4, 0.75, 0.75)]
    assert expected_error(said, np.array([0, 0, 0, 0])) == pytest.approx(0.25)
    assert reliability(said, np.array([0, 1, 1, 1]))[1].seen == pytest.approx(0.25)
