import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.graph_game.bound import best_response, milp_bound, upper_bound
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.instance import Instance

from tests.envs.graph_game.tiny import random_moves, tiny, two_pairs

DOMAINS = ("charging", "hydrogen", "vaccine")
CELLS = [f"{d}-{c}" for d in DOMAINS for c in ("regular", "irregular")]


def play_at_random(game: Game, seed: int, passing: float) -> np.ndarray:
    """Welfare (B,)."""
    rng, welfare = np.random.default_rng(seed), np.zeros(game.batch.games)
    while not game.ended:
        welfare += game.step(random_moves(game, rng, passing)).welfare
    return welfare


def play_plans(instance: Instance, plans: np.ndarray) -> np.ndarray:
    """Own payoffs (B, 2) of the plans (B, T, 2), exactly cleared; -inf from the first illegal move on."""
    game = Game([instance] * len(plans), clearing="exact")
    own = np.zeros((len(plans), 2))
    for moves in plans.transpose(1, 0, 2):
        legal = np.stack([m[np.arange(len(plans)), moves[:, k]] for k, m in enumerate(game.legal())], 1).all(1)
        passes = np.array([instance.sites, instance.nodes])
        own += game.step(np.where(legal[:, None], moves, passes)).own
        own[~legal] = -np.inf
    return own


EXAMPLES = int(os.environ.get("REFORK_FUZZ", "60"))
"""REFORK_FUZZ=2000 is the long form."""


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(DOMAINS),
    st.integers(3, 7),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.floats(0.05, 1),
    st.sampled_from(["prices", "exact"]),
    st.floats(0, 0.9),
)
def test_no_random_play_exceeds_the_bound(
    domain: str, n: int, number: int, rewired: float, money: float, clearing: str, noise: float
) -> None:
    instance = make_instance(f"{domain}-irregular-n{n}-{number}", horizon=1 + number % 7, rewired=rewired)
    instance = replace(instance, budget=money * instance.budget)
    game = Game([instance] * 8, clearing=clearing, noise=noise, noise_seeds=[number] * 8)
    bound = upper_bound(instance, game.demand[:, 0])
    for seed, passing in enumerate((0.0, 0.5, 0.9)):
        welfare = play_at_random(game.fork(np.arange(8)), seed, passing)
        assert (welfare <= bound * (1 + 1e-7) + 1e-7).all()


@pytest.mark.parametrize("cell", CELLS)
def test_plans_of_the_exact_program_are_played_as_valued_and_lie_below_the_relaxation(cell: str) -> None:
    instance = make_instance(f"{cell}-n4-1", horizon=6)
    exact, relaxed = milp_bound(instance), upper_bound(instance)
    assert exact.value == pytest.approx(exact.bound, rel=1e-4)
    assert 0.8 * relaxed <= exact.value <= relaxed * (1 + 1e-7)
    earned = play_plans(instance, exact.moves[None]).sum()
    assert 0.97 * exact.value <= earned <= exact.value * (1 + 1e-6)


def test_optimum_by_hand() -> None:
    exact = milp_bound(two_pairs())
    assert exact.value == pytest.approx(8.4 + 1.85)
    assert exact.moves[:2].tolist() == [[1, 1], [0, 0]]
    assert upper_bound(two_pairs()) == pytest.approx(8.4 + 1.85)


def test_nothing_that_pays_is_worth_nothing() -> None:
    assert upper_bound(tiny(2, 2, 3, price=0.0, tariff=0.0)) == pytest.approx(0, abs=1e-9)
    assert upper_bound(tiny(2, 2, 3, budget=np.array([0.5, 9.0]))) == pytest.approx(0, abs=1e-6)


def test_whole_optimum_is_the_best_of_all_plans() -> None:
    """All 9 ** 3 plans of 2 sites and 2 nodes over 3 rounds, coupled 2 x 2, with starts, take or pay, and a road."""
    instance = tiny(
        2,
        2,
        3,
        road_limit=2.5,
        price=np.array([1.0, 1.6]),
        demand=np.array([[1.0, 2.5], [2.0, 1.5], [3.0, 0.5]]),
        node_start=0.4,
        take=0.9,
        take_price=0.5,
        budget=np.array([2.0, 2.5]),
    )
    plans = np.array(list(product(product(range(3), range(3)), repeat=3)))
    best = play_plans(instance, plans).sum(1).max()
    assert milp_bound(instance).value == pytest.approx(best, rel=1e-6)
    assert upper_bound(instance) >= best - 1e-9


def test_whole_optimum_with_stock_is_the_best_of_all_plans() -> None:
    """Doses keep two rounds, the rest is waste; the first dose at a site counts more, three are all it can use."""
    instance = tiny(
        1, 1, 5, shelf_life=2, waste_price=0.7, late_price=0.5, knee=1.0, pool=3.0, levels=2, node_capacity=0.8
    )
    plans = np.array(list(product(product(range(2), range(2)), repeat=5)))
    best = play_plans(instance, plans).sum(1).max()
    # what is served at once is worth more to a round than to the game: the game may fall short of the free plan
    assert best <= milp_bound(instance).value * (1 + 1e-6) <= best * 1.05


@pytest.mark.parametrize("operator", [0, 1])
def test_best_response_is_the_best_of_all_replies(operator: int) -> None:
    instance = two_pairs()
    replies = np.array(list(product(range(3), repeat=3)))
    for other in ([1, 0, 2], [0, 2, 1], [2, 2, 2]):
        plans = np.repeat(np.array(other)[None, :, None], 27, 0).repeat(2, 2)
        plans[:, :, operator] = replies
        best = play_plans(instance, plans)[:, operator].max()
        found = best_response(instance, operator, np.array(other))
        assert found.value_bound == pytest.approx(best, abs=1e-6)
        plan = np.where(np.arange(2) == operator, found.moves[:, None], np.array(other)[:, None])
        assert play_plans(instance, plan[None])[0, operator] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_reply_in_a_game_exceeds_the_best_response(domain: str) -> None:
    instance = make_instance(f"{domain}-irregular-n3-2", horizon=4)
    other = np.array([1, 2, 3, 1])
    replies = np.array(list(product(range(4), repeat=4)))
    for operator in (0, 1):
        plans = np.repeat(other[None, :, None], len(replies), 0).repeat(2, 2)
        plans[:, :, operator] = replies
        own = play_plans(instance, plans)[:, operator]
        assert own.max() <= best_response(instance, operator, other).value_bound + 1e-6
