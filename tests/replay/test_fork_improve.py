from __future__ import annotations

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.replay.fork_improve import act, candidates, greedy, search
from refork.replay.games import Topology


class Fixed:
    """The same preferences in every state: a lower move is better, passing is worst."""

    def log_probs(
        self, site: np.ndarray, node: np.ndarray, topology: Topology, masks: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        def own(mask: np.ndarray) -> np.ndarray:
            scores = np.where(mask, -np.arange(mask.shape[1], dtype=np.float64), -np.inf)
            return scores - np.log(np.exp(scores).sum(1, keepdims=True))

        return own(masks[0]), own(masks[1])


COUPLED = Topology(
    np.ones((1, 3), np.bool_),
    np.ones((1, 3), np.bool_),
    np.array([[0, 1, 1, 2], [0, 1, 2, 0]]),
    np.zeros((2, 0), np.int64),
    np.zeros((2, 0), np.int64),
)


def games(noise: float = 0.0) -> Game:
    return Game([make_instance(f"charging-regular-n6-{k}", horizon=6) for k in range(3)], noise=noise)


def play_greedily(game: Game) -> np.ndarray:
    welfare = np.zeros(game.batch.games)
    while not game.ended:
        welfare += game.step(greedy(act(Fixed(), game))).welfare
    return welfare


def test_candidates_begin_with_the_policys_own_and_are_legal() -> None:
    game = games()
    masks = game.observe().masks
    tried = candidates(act(Fixed(), game), game.topology, 9, np.random.default_rng(0))
    assert tried.shape == (3, 9, 2)
    assert (tried[:, 0] == 0).all()
    for operator in (0, 1):
        assert masks[operator][np.arange(3)[:, None], tried[..., operator]].all()


def test_candidates_follow_the_coupling() -> None:
    """Site 2 is coupled to node 0 alone, node 2 to site 1 alone: who is drawn first brings its likeliest partner."""
    site, node = np.log([[0.1, 0.2, 0.3, 0.4]]), np.log([[0.1, 0.3, 0.2, 0.4]])
    partner_of_site, partner_of_node = {0: 0, 1: 1, 2: 0, 3: 3}, {0: 2, 1: 1, 2: 1, 3: 3}
    for seed in range(20):
        tried = candidates((site, node), COUPLED, 5, np.random.default_rng(seed))[0].tolist()
        assert tried[0] == [3, 3]
        assert tried[1][1] == partner_of_site[tried[1][0]]
        assert tried[2][0] == partner_of_node[tried[2][1]]
        assert tried[3][1] == 3
        assert tried[4][0] == 3


def test_more_candidates_than_moves_repeat_legal_ones() -> None:
    masked = np.full((1, 4), -np.inf)
    masked[0, [1, 3]] = np.log(0.5)
    tried = candidates((masked, masked), COUPLED, 12, np.random.default_rng(0))
    assert set(tried.ravel()) == {1, 3}


def test_search_takes_the_move_that_playing_on_shows_to_be_best() -> None:
    game = games()
    found = search(game, Fixed(), 8, np.random.default_rng(1), draw=1)
    tried = candidates(act(Fixed(), game), game.topology, 8, np.random.default_rng(1))
    for b in range(3):
        values = []
        for move in tried[b]:
            fork = game.fork(np.array([b]))
            first = fork.step(move[None]).welfare
            values.append(float((first + play_greedily(fork))[0]))
        assert found[b].tolist() == tried[b, int(np.argmax(values))].tolist()
    assert game.t == 0


def test_searching_every_round_beats_the_policy() -> None:
    searched = games()
    welfare = np.zeros(3)
    while not searched.ended:
        moves = search(searched, Fixed(), 12, np.random.default_rng(searched.t), draw=1)
        welfare += searched.step(moves).welfare
    assert (welfare >= play_greedily(games()) - 1e-9).all()
    assert welfare.sum() > play_greedily(games()).sum()


def test_forks_meet_other_noise_than_the_games_will() -> None:
    game = games(noise=0.5)
    same, other, again = (
        game.fork(np.array([0, 0])),
        game.fork(np.array([0, 0]), draw=3),
        game.fork(np.array([0]), draw=3),
    )
    assert (same.demand[:, 0] == game.demand[:, 0]).all()
    assert not np.allclose(other.demand[1:, 0], game.demand[1:, 0])
    assert (other.demand[:, 0] == other.demand[:, 1]).all()
    assert (other.demand[:, 0] == again.demand[:, 0]).all()


def test_own_moves_stay_where_nothing_brings_more_than_the_margin() -> None:
    game = games()
    own = greedy(act(Fixed(), game))
    assert (search(game, Fixed(), 8, np.random.default_rng(1), draw=1, margin=0.0) != own).any()
    assert (search(game, Fixed(), 8, np.random.default_rng(1), draw=1, margin=1e6) == own).all()
