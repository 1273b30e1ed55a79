import numpy as np
import pytest
from refork.envs.graph_game.bound import upper_bound
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.heuristics import HEURISTICS

CELLS = [f"{d}-{c}" for d in ("charging", "hydrogen", "vaccine") for c in ("regular", "irregular")]


def play(game: Game, name: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Welfare (B,) and moves (T, B, 2); the game raises for an illegal move."""
    heuristic, welfare, moves = HEURISTICS[name](seed), np.zeros(game.batch.games), []
    while not game.ended:
        moves.append(heuristic.moves(game))
        welfare += game.step(moves[-1]).welfare
    return welfare, np.stack(moves)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", HEURISTICS)
def test_below_the_bound_and_legal(cell: str, name: str) -> None:
    instances = [make_instance(f"{cell}-n{n}-{n}") for n in (5, 8, 9)]
    bounds = [upper_bound(instance) for instance in instances]
    for clearing in ("prices", "exact"):
        welfare, _ = play(Game(instances, clearing=clearing), name)
        assert (welfare <= np.array(bounds) * (1 + 1e-7)).all()


def test_pass_earns_nothing() -> None:
    welfare, _ = play(Game([make_instance(f"{cell}-n6-0") for cell in CELLS]), "pass")
    assert (welfare == 0).all()


@pytest.mark.parametrize("name", [name for name in HEURISTICS if name != "random"])
def test_a_batch_plays_as_each_game_alone(name: str) -> None:
    instances = [make_instance(f"{cell}-n{n}-1") for cell, n in zip(CELLS, (9, 6, 7, 6, 8, 5), strict=True)]
    together, moves = play(Game(instances), name)
    for b, instance in enumerate(instances):
        alone, own = play(Game([instance]), name)
        assert alone[0] == pytest.approx(together[b], abs=1e-9)
        passes = moves[:, b] >= [instance.sites, instance.nodes]
        assert (np.where(passes, [instance.sites, instance.nodes], moves[:, b]) == own[:, 0]).all()


def test_order_of_strength() -> None:
    """Central above decentralised above own-only, clearly, on irregular games of twenty sites."""
    games = [make_instance(f"{d}-irregular-n20-{k}") for d in ("charging", "hydrogen", "vaccine") for k in range(4)]
    bounds = np.array([upper_bound(instance) for instance in games])
    names = ("own_greedy", "one_hop_greedy", "coupled_greedy")
    own, hop, coupled = ((play(Game(games), name)[0] / bounds).mean() for name in names)
    assert own < 0.4 < 0.75 < hop < coupled
