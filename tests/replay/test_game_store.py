"""The games of a run on disk: what comes back plays the same game again."""

from pathlib import Path

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.replay.game_pack import LostGames
from refork.replay.game_store import GameStore

from tests.replay.game_parts import HORIZON, played, request

A, B = "charging-regular-n4-0", "vaccine-irregular-n6-1"


def test_a_stored_game_can_be_played_again(tmp_path: Path) -> None:
    store = GameStore(tmp_path)
    games = played([request(A, 2), request(B)])
    store.write(4, [LostGames((A,), "died"), games])
    stored = store.find(A, attempt=1)
    assert (stored.update, stored.episode, stored.behaviour, stored.pass_moves) == (4, 0, "policy", (6, 6))
    assert (stored.own == games.own[:, 1]).all()
    moves = np.where(stored.actions == stored.pass_moves, 4, stored.actions)
    again = Game([make_instance(A, horizon=HORIZON)], noise=0.3, noise_seeds=[stored.noise_seed])
    assert (np.stack([again.step(row[None]).own[0] for row in moves]) == stored.own).all()


def test_the_newest_is_found_and_what_is_not_there_is_said(tmp_path: Path) -> None:
    store = GameStore(tmp_path)
    store.write(0, [played([request(A)])])
    store.write(1, [played([request(A, episode=1)])])
    assert store.find(A).episode == 1
    assert store.find(A, episode=0).update == 0
    with pytest.raises(BadInput, match=r"no game of vaccine-irregular-n6-1, attempt 0; recorded: charging-"):
        store.find(B)


def test_a_resumed_run_drops_what_it_will_play_again(tmp_path: Path) -> None:
    store = GameStore(tmp_path)
    for update in range(4):
        store.write(update, [played([request(A)])])
    store.drop_from(2)
    assert store.updates() == [0, 1]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    store = GameStore(tmp_path)
    path = store.write(0, [played([request(A)])])
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match=r"00000000\.npz: cannot be read .*; remove the file to go on"):
        store.read(0)
