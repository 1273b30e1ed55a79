from dataclasses import replace

import numpy as np
import pytest
from refork.envs.graph_game.bound import upper_bound
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.local_scores import local_scores

from tests.envs.graph_game.tiny import two_pairs

CELLS = [f"{d}-{c}" for d in ("charging", "hydrogen", "vaccine") for c in ("regular", "irregular")]
HORIZON = 8


def play(game: Game, name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Welfare (B,) and moves (T, B, 2); the game raises for an illegal move."""
    heuristic, welfare, moves = HEURISTICS[name](seed), np.zeros(game.batch.games), []
    while not game.ended:
        moves.append(heuristic.moves(game))
        welfare += game.step(moves[-1]).welfare
    return welfare, np.stack(moves)


@pytest.fixture(scope="module")
def instances() -> list[Instance]:
    """Two of each cell, with too little money in every third."""
    made = [make_instance(f"{cell}-n{n}-{n}", horizon=HORIZON) for cell in CELLS for n in (4, 7)]
    return [replace(i, budget=i.budget / 3) if k % 3 == 0 else i for k, i in enumerate(made)]


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("clearing", ["prices", "exact"])
def test_all_play_legally_and_below_the_bound(instances: list[Instance], clearing: str, noise: float) -> None:
    game = Game(instances, clearing=clearing, noise=noise, noise_seeds=range(100, 100 + len(instances)))
    drawn = [game.demand[:, b, : i.sites] for b, i in enumerate(instances)]
    bounds = np.array([upper_bound(i, demand) for i, demand in zip(instances, drawn, strict=True)])
    for name in HEURISTICS:
        welfare, moves = play(game.fork(np.arange(len(instances))), name)
        assert (welfare <= bounds * (1 + 1e-7) + 1e-9).all(), name
        assert (name == "pass") == bool((moves == [7, 7]).all())


def test_pass_earns_nothing(instances: list[Instance]) -> None:
    assert (play(Game(instances), "pass")[0] == 0).all()


@pytest.mark.parametrize("name", [name for name in HEURISTICS if name != "random"])
def test_a_batch_plays_as_each_game_alone(name: str, instances: list[Instance]) -> None:
    chosen = instances[::5]
    together, moves = play(Game(chosen), name)
    for b, instance in enumerate(chosen):
        alone, own = play(Game([instance]), name)
        assert alone[0] == pytest.approx(together[b], abs=1e-9)
        assert (np.minimum(moves[:, b], [instance.sites, instance.nodes]) == own[:, 0]).all()


def test_random_plays_by_its_seed(instances: list[Instance]) -> None:
    first, again, other = (play(Game(instances), "random", seed)[1] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", ["one_hop_greedy", "coupled_greedy", "lookahead_greedy", "myopic_best_response"])
def test_plans_do_not_see_noise_ahead(name: str) -> None:
    """Games whose demand is the same up to the coming round are played the same."""
    instance = make_instance("vaccine-irregular-n6-3", horizon=HORIZON)
    game = Game([instance] * 2, noise=0.5, noise_seeds=[1, 2])
    game.demand[0, 1] = game.demand[0, 0]
    moves = HEURISTICS[name](0).moves(game)
    assert (moves[0] == moves[1]).all()


def test_local_scores_by_hand() -> None:
    """Pair (0, 0), 3 rounds: min(2, 1.5) units at 1 + 0.5, less 1 + 1.25 once and 3 x 0.2 of upkeep."""
    scores = local_scores(Game([two_pairs()]))
    assert scores.pair == pytest.approx([3 * 1.5 * 1.5 - 2.25 - 0.6, 3 * 1.5 * 2.5 - 2.25 - 0.6])
    assert scores.site[0] == pytest.approx([-1.3, -1.3])  # no node has room: all that is certain is the cost


def test_central_greedy_opens_the_better_pair_first() -> None:
    welfare, moves = play(Game([two_pairs()], clearing="exact"), "coupled_greedy")
    assert moves[:, 0].tolist() == [[1, 1], [0, 0], [2, 2]]
    assert welfare[0] == pytest.approx(3 * 1.5 * 2.5 - 2.25 - 0.6 + 2 * 1.5 * 1.5 - 2.25 - 0.4)


def test_order_of_strength() -> None:
    """Central above decentralised above own-only, clearly, on irregular games of twenty sites."""
    games = [make_instance(f"{d}-irregular-n20-{k}") for d in ("charging", "hydrogen", "vaccine") for k in range(2)]
    bounds = np.array([upper_bound(instance) for instance in games])
    names = ("own_greedy", "one_hop_greedy", "coupled_greedy", "lookahead_greedy")
    own, hop, coupled, lookahead = ((play(Game(games), name)[0] / bounds).mean() for name in names)
    assert own < 0.3 < 0.8 < hop < coupled < lookahead
