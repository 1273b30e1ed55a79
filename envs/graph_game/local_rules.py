"""The decentralised greedy: both operators come to the same scores by what each of them sees."""

from __future__ import annotations

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.local_scores import local_scores
from refork.envs.graph_game.ranking import best_of


class OneHopGreedy:
    """Decentralised: both operators see their own nodes and the coupled ones, and choose by the same local scores.

    They open the pair of the highest score, unless the best two builds that use what is idle bring more together.
    """

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        scores = local_scores(game)
        gain = [np.maximum(0.0, score.max(1)) for score in (scores.site, scores.node)]
        alone = [
            np.where(best > 0, score.argmax(1), score.shape[1])
            for best, score in zip(gain, (scores.site, scores.node), strict=True)
        ]
        first, second = game.topology.pairs
        best = best_of(scores.pair, first // game.batch.sites, game.batch.games)
        pair = np.stack([first[best] % game.batch.sites, second[best] % game.batch.nodes], 1)
        return np.where((scores.pair[best] > gain[0] + gain[1])[:, None], pair, np.stack(alone, 1))
