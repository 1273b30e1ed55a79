"""The study of channels as decision makers: what it measures, on logs where the answer is known."""

import numpy as np
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.replay.transitions import of
from refork.scripts.bench.factored import CELLS, METHODS, as_joint, unseen
from refork.trainers.config import JobConfig


def test_regimens_are_numbered_as_the_joint_simulator_numbers_them() -> None:
    apart, together = (of(SepsisScm(factored=f).log("confounded", 50, 3)) for f in (True, False))
    joint = as_joint(apart)
    assert joint.spec.action.sizes == (8,)
    np.testing.assert_array_equal(joint.actions, together.actions)


def test_what_was_never_given_is_unseen_and_what_is_given_most_is_not() -> None:
    log = of(SepsisScm(factored=True).log("never_treat", 200, 0))

    def always(level: int) -> float:
        choice = np.eye(2)[[level] * 3]
        return unseen(log, lambda seen, _allowed: np.broadcast_to(choice, (len(seen), 3, 2)))

    assert always(1) == 1.0
    assert always(0) < 0.06


def test_every_method_has_as_many_settings_and_makes_a_job() -> None:
    for cell in CELLS:
        assert {len(cell.tried(method)) for method in METHODS} == {3}
        for method in METHODS:
            assert isinstance(cell.job(method, cell.tried(method)[0], 0, True, True), JobConfig)
