"""CFCQL, and what it is compared with, in games of one move whose best joint action is known."""

import numpy as np
import pytest
import torch
from refork.replay.transitions import Transitions

from tests.trainers.matrix_game import CONTINUOUS, DISCRETE, game, learnt

PAYS = np.array([[2.0, 1.0, 0.0], [3.0, 6.0, 1.0], [0.0, 2.0, 3.0]]) - 8
BEST = 1.0 - 2 * (0.45 - 0.5) ** 2 - 2 * (-0.19 + 0.3) ** 2 - 0.45 * 0.19
"""Of `_bowl`, at (0.45, -0.19)."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _table(actions: np.ndarray) -> np.ndarray:
    return PAYS[actions[:, 0], actions[:, 1]]


def _bowl(actions: np.ndarray) -> np.ndarray:
    a, b = actions[:, 0, 0], actions[:, 1, 0]
    return 1 - 2 * (a - 0.5) ** 2 - 2 * (b + 0.3) ** 2 + a * b


def _slope(actions: np.ndarray) -> np.ndarray:
    return 5 * actions.sum((1, 2))


@pytest.mark.parametrize("mixer", ["monotonic", "central"])
def test_with_all_joint_actions_logged_it_finds_the_best(mixer: str) -> None:
    log = game(DISCRETE, np.random.default_rng(0).integers(3, size=(600, 2)), _table)
    found = learnt(log, steps=200, kind="cfcql", mixer=mixer, alpha=0.1)
    assert found.argmax(-1).tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("mixer", ["monotonic", "central"])
def test_plain_values_lure_to_an_action_that_was_never_taken(mixer: str) -> None:
    """An untrained value above the logged ones, which are all below 0."""
    plain = learnt(_narrow(), steps=200, kind="cfcql", mixer=mixer, alpha=0.0)
    assert (plain.argmax(-1) == 2).any(-1).all()


@pytest.mark.parametrize(("kind", "mixer"), [("cfcql", "monotonic"), ("cfcql", "central"), ("macql", "monotonic")])
def test_the_conservative_term_finds_the_best_of_the_logged_actions(kind: str, mixer: str) -> None:
    found = learnt(_narrow(), steps=200, kind=kind, mixer=mixer, alpha=0.3)
    assert found.argmax(-1).tolist() == [[1, 1]] * 3


def _narrow() -> Transitions:
    """Action 2 was never taken."""
    return game(DISCRETE, np.random.default_rng(0).integers(2, size=(600, 2)), _table)


def test_continuous_actors_find_the_best_joint_action() -> None:
    log = game(CONTINUOUS, np.random.default_rng(0).random((600, 2, 1)) * 2 - 1, _bowl)
    found = learnt(log, steps=400, kind="cfcql", alpha=0.1, seeds=2)
    assert _bowl(found).min() > BEST - 0.25  # the game's values reach down to -8


def test_continuous_actors_stay_among_logged_actions_where_plain_ones_do_not() -> None:
    """All logged actions lie within 0.2; a slope lures to 1."""
    log = game(CONTINUOUS, np.random.default_rng(0).random((600, 2, 1)) * 0.4 - 0.2, _slope)
    plain = learnt(log, steps=200, kind="cfcql", alpha=0.0, seeds=1)
    assert plain.min() > 0.9
    found = learnt(log, steps=200, kind="cfcql", alpha=2.0, seeds=1)
    assert found.min() > 0
    assert found.max() < 0.25


def test_omar_stays_among_logged_actions_too() -> None:
    log = game(CONTINUOUS, np.random.default_rng(0).random((600, 2, 1)) * 0.4 - 0.2, _slope)
    found = learnt(log, steps=200, kind="omar", alpha=2.0, seeds=1)
    assert found.min() > -0.1
    assert found.max() < 0.25
