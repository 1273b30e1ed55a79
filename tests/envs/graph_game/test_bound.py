import numpy as np
import pytest
from refork.envs.graph_game.bound import best_response, milp_bound, upper_bound
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance

CELLS = [f"{d}-{c}" for d in ("charging", "hydrogen", "vaccine") for c in ("regular", "irregular")]


def play_at_random(game: Game, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Own payoffs (B, 2) and moves (T, B, 2)."""
    rng, own, moves = np.random.default_rng(seed), 0.0, []
    while not game.ended:
        chosen = [(rng.random(legal.shape) * legal).argmax(1) for legal in game.legal()]
        moves.append(np.stack(chosen, 1))
        own = own + game.step(moves[-1]).own
    return own, np.stack(moves)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("clearing", ["prices", "exact"])
def test_bound_exceeds_random_play(cell: str, clearing: str) -> None:
    instances = [make_instance(f"{cell}-n6-{k}", horizon=8) for k in range(6)]
    bounds = np.array([upper_bound(instance) for instance in instances])
    own, _ = play_at_random(Game(instances, clearing=clearing), 0)
    assert (own.sum(1) <= bounds).all()


@pytest.mark.parametrize("cell", CELLS)
def test_bounds_are_ordered_and_the_plan_earns_its_value(cell: str) -> None:
    instance = make_instance(f"{cell}-n4-1", horizon=6)
    exact = milp_bound(instance)
    assert exact.value == pytest.approx(exact.bound, rel=1e-4)
    assert exact.value <= upper_bound(instance) * (1 + 1e-7)
    game, own = Game([instance], clearing="exact"), 0.0
    for moves in exact.moves:
        own = own + game.step(moves[None]).own
    assert 0.9 * exact.value <= own.sum() <= exact.value * (1 + 1e-6)


def test_no_reply_beats_the_best_response() -> None:
    instance = make_instance("hydrogen-irregular-n4-2", horizon=5)
    game = Game([instance] * 300, clearing="exact")
    own, moves = play_at_random(game, 3)
    for operator in (0, 1):
        best = best_response(instance, operator, moves[:, 0, 1 - operator])
        assert own[0, operator] <= best.value_bound + 1e-6
