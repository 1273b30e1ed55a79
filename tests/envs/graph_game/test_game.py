"""The batched core: payoffs by hand, identities of the alignments, batches against single games, forks and noise."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.graph_game.batch import stack
from refork.envs.graph_game.check import check_instance
from refork.envs.graph_game.game import Game, GameState
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES, observe

from tests.envs.graph_game.tiny import random_moves, tiny

MIXED = ("charging-irregular-n6-0", "vaccine-irregular-n9-1", "hydrogen-regular-n4-2", "vaccine-regular-n5-3")


def play(instance: Any, moves: list[tuple[int, int]], **options: Any) -> list[tuple[float, float]]:
    """True payoffs of each round."""
    check_instance(instance)
    game = Game([instance], **{"clearing": "exact"} | options)
    return [tuple(game.step(np.array([move])).own[0].round(12)) for move in moves]


def test_payoffs_by_hand() -> None:
    """Capital in the round of the build, upkeep on every level, income on what flows: min of both sides' levels."""
    payoffs = play(tiny(), [(0, 1), (1, 0), (0, 1), (1, 0)])
    assert payoffs == [
        (-1.0 - 0.1, 0.0),
        (2 - 0.1, 1 - 1.0 - 0.2),
        (2 - 1.0 - 0.2, 1 - 0.2),
        (4 - 0.2, 2 - 1.0 - 0.4),
    ]


def test_passing_earns_nothing() -> None:
    game = Game([make_instance(name) for name in MIXED], noise=0.3)
    passes = np.tile([game.batch.sites, game.batch.nodes], (4, 1))
    while not game.ended:
        payoff = game.step(passes)
        assert not payoff.rewards.any()
        assert not payoff.welfare.any()


def test_prices_fall_beyond_the_knee() -> None:
    payoffs = play(tiny(knee=1.5, late_price=0.5), [(0, 0), (1, 1), (1, 1)])
    assert [demand for demand, _ in payoffs] == pytest.approx([2 - 1.1, 0.5 * 2 + 0.5 * 0.5 - 0.1, 0.5 - 0.1])


def test_a_pool_runs_dry() -> None:
    payoffs = play(tiny(pool=1.5), [(0, 0), (1, 1), (1, 1)])
    assert [demand for demand, _ in payoffs] == pytest.approx([2 - 1.1, 1 - 0.1, -0.1])


def test_take_or_pay() -> None:
    """.5 a level and round must flow or be paid for at .4; demand lets .3 flow."""
    payoffs = play(tiny(take=0.5, take_price=0.4, demand=0.3, node_start=2.5), [(1, 0), (0, 1), (1, 0)])
    expected = [-0.5 * 0.4 - 3.5 - 0.2, 0.3 - 0.2 * 0.4 - 0.2, 0.3 - 0.7 * 0.4 - 1.0 - 0.4]
    assert [supply for _, supply in payoffs] == pytest.approx(expected)


def test_stock_is_used_oldest_first_expires_and_is_wasted_at_the_end() -> None:
    """Two units a round that keep for two rounds; the site takes one a round from the second on."""
    game = Game([tiny(node_capacity=2.0, shelf_life=2, waste_price=0.3, horizon=4)], clearing="exact")
    stocks, wastes = [], []
    for move in ((1, 0), (0, 1), (1, 1), (1, 1)):
        supply = game.step(np.array([move])).own[0, 1]
        through = game.state.through[0, 0]
        capital = 1.0 if move[1] == 0 else 0.0
        wastes.append(round((through - 0.2 - capital - supply) / 0.3, 9))
        stocks.append(game.state.stock[0, 0].tolist())
    assert stocks == [[0, 2], [0, 2], [0, 2], [0, 0]]
    assert wastes == [0, 1, 1, 1 + 2]  # of the two old ones one is used; at the end the two young ones go as well


def test_a_shelf_life_of_one_round_is_no_store() -> None:
    payoffs = play(tiny(node_capacity=2.0, shelf_life=1, waste_price=0.3), [(1, 0), (0, 1)])
    assert [supply for _, supply in payoffs] == pytest.approx([-1.2 - 2 * 0.3, 1 - 0.2 - 0.3])


def test_stock_serves_more_than_a_rounds_allotment() -> None:
    instance = tiny(shelf_life=3, site_capacity=3.0)
    payoffs = play(instance, [(1, 0), (1, 1), (0, 1)])
    assert payoffs[2][0] == pytest.approx(3 * 2 - 1.1)


def test_moves_are_legal_while_levels_and_budget_last() -> None:
    game = Game([tiny(2, 1, budget=np.array([2.5, 4.5]), node_start=2.0, site_capital=np.array([1.0, 2.0]))])
    assert [legal[0].tolist() for legal in game.legal()] == [[True, True, True], [True, True]]
    game.step(np.array([[0, 0]]))
    assert [legal[0].tolist() for legal in game.legal()] == [[True, False, True], [True, True]]
    game.step(np.array([[0, 0]]))
    assert game.state.spent.tolist() == [[2.0, 4.0]]
    assert [legal[0].tolist() for legal in game.legal()] == [[False, False, True], [False, True]]
    high = Game([tiny(levels=1)])
    high.step(np.array([[0, 0]]))
    assert [legal[0].tolist() for legal in high.legal()] == [[False, True], [False, True]]


@pytest.mark.parametrize("move", [(-1, 0), (0, 9), (9, 9), (8, 0), (0, 8)])
def test_an_illegal_move_is_refused_and_changes_nothing(move: tuple[int, int]) -> None:
    game = Game([make_instance("charging-regular-n9-0"), make_instance("charging-regular-n4-0")])
    before = game.state
    bad = [move[0] if move[0] != 9 else 10, move[1] if move[1] != 9 else 10]
    with pytest.raises(ValueError, match=r"game 1, round 0: move -?\d+ of operator [01] is illegal"):
        game.step(np.array([[0, 0], bad]))
    assert game.state is before


def test_the_end_is_the_end() -> None:
    game = Game([tiny(horizon=1)])
    game.step(np.array([[0, 0]]))
    assert game.ended
    with pytest.raises(RuntimeError, match="have ended"):
        game.step(np.array([[1, 1]]))


def test_games_of_different_length_are_no_batch() -> None:
    with pytest.raises(ValueError, match=r"one horizon, got \[4, 5\]"):
        Game([tiny(horizon=4), tiny(horizon=5)])


def outcome(alignment: Any, moves: np.ndarray, **options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards, true payoffs (2,) and welfare of a whole game of one seed and those moves (T, 2)."""
    game = Game([make_instance("hydrogen-irregular-n6-2")], alignment=alignment, noise=0.2, **options)
    payoffs = [game.step(move[None]) for move in moves]
    sums = (sum(getattr(p, name)[0] for p in payoffs) for name in ("rewards", "own", "welfare"))
    return tuple(np.asarray(s) for s in sums)  # type: ignore[return-value]


def legal_game(seed: int) -> np.ndarray:
    game, rng, moves = Game([make_instance("hydrogen-irregular-n6-2")], noise=0.2), np.random.default_rng(seed), []
    while not game.ended:
        moves.append(random_moves(game, rng))
        game.step(moves[-1])
    return np.concatenate(moves)  # (T, 2)


@pytest.mark.parametrize("seed", range(5))
def test_alignments(seed: int) -> None:
    """identical: shares of the welfare. general: true payoffs. potential: a deviation's gain is the welfare's gain."""
    moves, other = legal_game(seed), legal_game(seed + 100)
    rewards, own, welfare = outcome("identical", moves)
    assert rewards.sum() == pytest.approx(welfare) == pytest.approx(own.sum())
    assert rewards[0] == rewards[1]
    assert outcome("general", moves)[0] == pytest.approx(own)
    for agent in range(2):
        deviation = moves.copy()
        deviation[:, agent] = other[:, agent]
        before, after = outcome("potential", moves), outcome("potential", deviation)
        assert after[0][agent] - before[0][agent] == pytest.approx(after[2] - before[2], abs=1e-9)
        assert before[1] == pytest.approx(own)


@pytest.mark.parametrize("clearing", ["prices", "exact"])
def test_a_batch_of_mixed_sizes_plays_as_its_games_alone(clearing: Any) -> None:
    instances = [make_instance(name) for name in MIXED]
    options: dict[str, Any] = {"clearing": clearing, "alignment": "potential"}
    together = Game(instances, **options)
    alone = [Game([instance], **options) for instance in instances]
    rng = np.random.default_rng(1)
    for _ in range(20):
        seen, moves = observe(together), random_moves(together, rng)
        payoff = together.step(moves)
        for b, (game, instance) in enumerate(zip(alone, instances, strict=True)):
            n, m = instance.sites, instance.nodes
            single = observe(game)
            assert seen.site[b, :n] == pytest.approx(single.site[0], abs=1e-6)
            assert seen.node[b, :m] == pytest.approx(single.node[0], abs=1e-6)
            assert (seen.masks[0][b, [*range(n), -1]] == single.masks[0][0]).all()
            assert (seen.masks[1][b, [*range(m), -1]] == single.masks[1][0]).all()
            own = game.step(np.where(moves[b] == [together.batch.sites, together.batch.nodes], [n, m], moves[b])[None])
            assert payoff.rewards[b] == pytest.approx(own.rewards[0], abs=1e-9)
            assert payoff.own[b] == pytest.approx(own.own[0], abs=1e-9)


def test_padding_shows_nothing_and_cannot_be_built() -> None:
    game = Game([make_instance(name) for name in MIXED])
    played(game, 6)
    seen = observe(game)
    masks = game.topology.site_mask, game.topology.node_mask
    for features, mask, legal in zip((seen.site, seen.node), masks, seen.masks, strict=True):
        assert not features[~mask].any()
        assert not legal[:, :-1][~mask].any()
        assert legal[:, -1].all()
        assert np.isfinite(features).all()
    assert seen.site.shape == (4, 9, len(SITE_FEATURES))
    assert seen.node.shape == (4, 9, len(NODE_FEATURES))


def played(game: Game, rounds: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        game.step(random_moves(game, rng))


def assert_same_batch(one: Any, other: Any) -> None:
    """Of two batches, topologies, rows or states, field by field."""
    for f in fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if hasattr(a, "__dataclass_fields__"):
            assert_same_batch(a, b)
        elif isinstance(a, dict):
            assert all((a[name] == b[name]).all() for name in a), f.name
        else:
            assert np.array_equal(a, b), f.name


@settings(max_examples=30, deadline=None)
@given(games=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_taking_games_is_stacking_them(games: list[int]) -> None:
    instances = [make_instance(name) for name in MIXED]
    wide = make_instance("charging-regular-n9-5")  # the widest of the chosen ones sets the padding
    taken = stack([*instances, wide]).take(np.array([*games, 4]))
    assert_same_batch(taken, stack([*(instances[g] for g in games), wide]))


def test_forked_rows_are_equal_and_independent() -> None:
    game = Game([make_instance(name) for name in MIXED], noise=0.3, noise_seeds=[5, 6, 7, 8])
    played(game, 7)
    before = game.state
    fork = game.fork(np.array([1, 3, 1]))
    move = random_moves(game, np.random.default_rng(2))
    payoff = fork.step(move[[1, 3, 1]])
    assert game.state is before
    own = game.step(move)
    assert payoff.own[[0, 2]] == pytest.approx(own.own[[1, 1]], abs=1e-12)
    assert payoff.own[1] == pytest.approx(own.own[3], abs=1e-12)
    assert_same_state(fork.state, game.state.take(np.array([1, 3, 1])))


def assert_same_state(one: GameState, other: GameState) -> None:
    for name, value in vars(one).items():
        assert np.allclose(value, getattr(other, name), atol=1e-12), name


def test_noise_belongs_to_the_seed_of_each_game_alone() -> None:
    instances = [make_instance(name) for name in MIXED[:2]]
    game = Game(instances, noise=0.3, noise_seeds=[5, 6])
    swapped = Game([instances[1], instances[0], instances[1]], noise=0.3, noise_seeds=[6, 5, 7])
    assert (game.demand[:, 0, :6] == swapped.demand[:, 1, :6]).all()
    assert (game.demand[:, 1] == swapped.demand[:, 0]).all()
    assert (swapped.demand[:, 0, :9] != swapped.demand[:, 2, :9]).all()
    ratio = game.demand[:, 1, :9] / instances[1].demand
    assert 0.7 <= ratio.min() < 0.8 < 1.2 < ratio.max() <= 1.3
    assert (Game(instances).demand[:, 1, :9] == instances[1].demand).all()


def test_same_noise_replays_and_fresh_noise_redraws_what_is_to_come() -> None:
    game = Game([make_instance(MIXED[0])], noise=0.3)
    played(game, 5)
    state, demand = game.state, game.demand
    moves = [random_moves(game, np.random.default_rng(9)) for _ in range(1)]
    first = game.step(moves[0]).own
    game.restore(state, noise="same")
    assert (game.step(moves[0]).own == first).all()
    game.restore(state, noise="fresh", draw=3)
    assert (game.demand[:6] == demand[:6]).all()  # the round to be played has been seen
    assert (game.demand[6:] != demand[6:]).all()
    assert (game.fork(np.array([0, 0]), draw=3).demand == game.demand[:, [0, 0]]).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), clearing=st.sampled_from(["prices", "exact"]))
def test_whole_games_keep_every_limit(seed: int, clearing: Any) -> None:
    names = [f"{d}-irregular-n{3 + seed % 7}-{seed}" for d in ("charging", "hydrogen", "vaccine")]
    game = Game([make_instance(name) for name in names], clearing=clearing, noise=0.5)
    rng, waste_paid, allotted, used = np.random.default_rng(seed), 0.0, 0.0, 0.0
    batch, site, node = game.batch, game.batch.site, game.batch.node
    while not game.ended:
        before = game.state
        payoff = game.step(random_moves(game, rng))
        now = game.state
        assert (now.served >= 0).all()
        assert (now.served <= site["site_capacity"] * now.site_level + 1e-9).all()
        assert (now.served <= game.demand[now.t - 1] + 1e-9).all()
        assert (now.covered <= site["pool"] + 1e-9).all()
        stored = before.stock.sum(-1) + node["node_capacity"] * now.node_level
        assert (now.through <= stored + 1e-9).all()
        assert now.served.sum(1) == pytest.approx(now.through.sum(1), abs=1e-9)
        assert (now.spent <= batch.budget + 1e-9).all()
        assert (now.stock >= 0).all()
        assert payoff.welfare == pytest.approx(payoff.own.sum(1))
        spent = (now.spent - before.spent)[2, 1] + (node["node_upkeep"] * now.node_level).sum(1)[2]
        waste_paid += (node["tariff"] * now.through).sum(1)[2] - spent - payoff.own[2, 1]
        allotted += (node["node_capacity"] * now.node_level)[2].sum()
        used += now.through[2].sum()
    assert waste_paid == pytest.approx(0.3 * (allotted - used), abs=1e-7)  # what was not given out was wasted


def test_the_instance_decides_not_its_name() -> None:
    instance = make_instance(MIXED[1])
    assert replace(instance, name="x", site_names=("a",)).digest() == instance.digest()
    for name in ("price", "pairs", "demand", "row_limit", "budget"):
        value = getattr(instance, name).copy()
        value[0] += 1
        assert replace(instance, **{name: value}).digest() != instance.digest(), name
    assert replace(instance, shelf_life=4).digest() != instance.digest()
