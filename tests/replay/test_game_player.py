"""Playing batches of games: keys decide what is drawn, heuristics are recorded as such, search gives teachers."""

import numpy as np
import pytest
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.replay.game_pack import GamePack, LostGames, pack
from refork.replay.game_player import Greedy, Ruled, Sampled, draw, play, sample, taken
from refork.replay.games import ImproveConfig

from tests.replay.game_parts import HORIZON, Level, game_of, played, request

A, B, C = "charging-regular-n4-0", "vaccine-irregular-n6-1", "hydrogen-regular-n5-2"


def test_a_game_is_the_same_whatever_it_is_played_beside() -> None:
    alone, beside = played([request(C, 2)]), played([request(A), request(C, 2), request(B)])
    assert beside.tasks == (A, C, C, B)
    assert (alone.own == beside.own[:, 1:3]).all()
    assert (alone.rewards == beside.rewards[:, 1:3]).all()
    passes = alone.actions == [5, 5]
    assert (beside.actions[:, 1:3] == np.where(passes, [6, 6], alone.actions)).all()
    assert alone.noise_seeds == beside.noise_seeds[1:3]
    assert len({*beside.noise_seeds}) == 4


def test_another_episode_is_another_game() -> None:
    assert (played([request(A)]).own != played([request(A, episode=1)]).own).any()


def test_the_record_is_of_what_happened() -> None:
    games = played([request(A, 2), request(B)])
    assert games.site.shape[:3] == (HORIZON, 3, 6)
    assert games.version == 3
    assert games.attempts == (0, 1, 0)
    assert games.masks[0][:, :, -1].all()
    again = Level().log_probs(games.site[2], games.node[2], games.topology, (games.masks[0][2], games.masks[1][2]))
    assert (taken(again, games.actions[2]) == games.log_probs[2]).all()
    assert [task for task, _ in games.outcomes] == [A, A, B]
    assert [o.value for _, o in games.outcomes] == pytest.approx(games.own.sum((0, 2)).tolist())  # type: ignore[union-attr]


def test_sampling_follows_the_probabilities_and_never_takes_the_impossible() -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.array([[0.0, 0.25, 0.0, 0.75, 0.0]]))
    drawn = [sample((log_probs, log_probs), np.array([[u, u]]))[0, 0] for u in (0.0, 0.2499, 0.25, 0.999, 1 - 2**-53)]
    assert drawn == [1, 1, 3, 3, 3]
    uniforms = np.random.default_rng(0).random((4000, 2))
    rows = np.repeat(log_probs, 4000, 0)
    assert (sample((rows, rows), uniforms) == 3).mean() == pytest.approx(0.75, abs=0.02)


def test_a_heuristic_is_played_as_it_says() -> None:
    unit = GamePack((request(A, 2),))
    draws = draw(unit, HORIZON)
    games = play(game_of(unit, draws), unit, Ruled(HEURISTICS["pass"](0).moves), draws, 0, "pass")
    assert (games.actions == [4, 4]).all()
    assert (games.own == 0).all()
    assert (games.log_probs == 0).all()
    assert games.teacher is None
    assert games.behaviour == "pass"


def test_searched_rounds_have_a_teacher_and_do_not_change_the_play() -> None:
    unit = GamePack((request(A, 2), request(B, 2)))
    draws = draw(unit, HORIZON)
    plain = play(game_of(unit, draws), unit, Sampled(Level(), draws), draws, 0, "policy")
    searching = Sampled(Level(), draws, ImproveConfig(candidates=4, states=0.5))
    games = play(game_of(unit, draws), unit, searching, draws, 0, "policy")
    assert (games.actions == plain.actions).all()
    assert games.teacher is not None
    assert ((games.teacher >= 0).all(-1) == (draws.searched < 0.5)).all()
    assert 0 < (games.teacher >= 0).mean() < 1
    for agent, mask in enumerate(games.masks):
        rounds, rows = np.nonzero(games.teacher[..., agent] >= 0)
        assert mask[rounds, rows, games.teacher[rounds, rows, agent]].all()


def test_searching_at_decision_time_pays() -> None:
    unit = GamePack(tuple(request(f"charging-regular-n6-{i}", greedy=True) for i in range(8)))
    draws = draw(unit, HORIZON)
    plain = play(game_of(unit, draws, 0.0), unit, Greedy(Level(), draws), draws, 0, "policy")
    searched = play(game_of(unit, draws, 0.0), unit, Greedy(Level(), draws, 12), draws, 0, "policy")
    assert searched.welfare.mean() > plain.welfare.mean()


def test_packs_hold_one_episode_of_like_sizes_and_are_full() -> None:
    requests = [request(A, 2), request(B, 2), request(A, 3, episode=1), request(C, 2), request(B, 9)]
    packs = pack(requests, lambda task: int(task.split("-n")[1][0]), 4)
    assert [[(r.task, r.size, r.episode) for r in p.requests] for p in packs] == [
        [(A, 2, 0), (C, 2, 0)],
        [(B, 2, 0)],
        [(B, 9, 0)],
        [(A, 3, 1)],
    ]
    assert packs[0].tasks == (A, A, C, C)
    assert packs[0].task == f"{A} and 3 more games"


def test_lost_games_are_infra_outcomes() -> None:
    assert [(task, o.reason) for task, o in LostGames((A, B), "died").outcomes] == [(A, "died"), (B, "died")]
