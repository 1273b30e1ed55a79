"""The decentralised greedy: both operators come to the same scores by what each of them sees."""

from __future__ import annotations

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.local_scores import local_scores, one_hop_moves


class OneHopGreedy:
    """Decentralised: both operators see their own nodes and the coupled ones, and choose by the same local scores.

    They open the pair of the highest score, unless the best two builds that use what is idle bring more together.
    """

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        return one_hop_moves(game, local_scores(game))
