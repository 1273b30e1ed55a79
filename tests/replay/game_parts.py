"""Small games and policies for tests of what plays and keeps games."""

from collections.abc import Sequence

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.replay.game_pack import GamePack
from refork.replay.game_player import Chooser, Draws, Sampled, draw, play
from refork.replay.games import PlayedGames, Topology
from refork.replay.player import GroupRequest

HORIZON = 6


class Level:
    """Likes cheap moves: log-probabilities from one feature alone, so that it needs no network."""

    def log_probs(
        self, site: np.ndarray, node: np.ndarray, topology: Topology, masks: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        return _log_softmax(site[..., 3], masks[0]), _log_softmax(node[..., 2], masks[1])


def _log_softmax(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    logits = np.concatenate([scores, np.zeros((len(scores), 1))], 1)
    logits = np.where(mask, logits, -np.inf)
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


def request(task: str, size: int = 1, episode: int = 0, greedy: bool = False) -> GroupRequest:
    return GroupRequest(task, episode, 7, 0, size, greedy)


def game_of(pack: GamePack, draws: Draws, noise: float = 0.3) -> Game:
    instances = [make_instance(task, horizon=HORIZON) for task in pack.tasks]
    return Game(instances, noise=noise, noise_seeds=draws.noise_seeds)


def played(requests: Sequence[GroupRequest], noise: float = 0.3) -> PlayedGames:
    """By sampling from `Level`."""
    pack = GamePack(tuple(requests))
    draws = draw(pack, HORIZON)
    chooser: Chooser = Sampled(Level(), draws)
    return play(game_of(pack, draws, noise), pack, chooser, draws, 3, "policy")
