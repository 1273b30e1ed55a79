"""The best entries of each game, where entries of all games lie in one list."""

from __future__ import annotations

import numpy as np


def best_of(score: np.ndarray, owner: np.ndarray, games: int) -> np.ndarray:
    """(B,): which entry of each game has the greatest score (K,); every game has one."""
    order = np.lexsort((-score, owner))
    return order[np.searchsorted(owner[order], np.arange(games))]


def best_few(score: np.ndarray, owner: np.ndarray, games: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to that many entries of each game by score (K,), those of -inf left out; and the game of each."""
    order = np.lexsort((-score, owner))
    starts = np.searchsorted(owner[order], np.arange(games))
    rank = np.arange(len(order)) - starts[owner[order]]
    chosen = order[(rank < count) & np.isfinite(score[order])]
    return chosen, owner[chosen]


def best_columns(score: np.ndarray, count: int) -> np.ndarray:
    """(B, count + 1): column n, and the best ones by score (B, n); -1 where fewer are above -inf."""
    padded = np.concatenate([score, np.full((len(score), count + 1), -np.inf)], 1)
    padded[:, score.shape[1]] = np.inf
    top = np.argsort(-padded, 1, kind="stable")[:, : count + 1]
    return np.where(np.isneginf(np.take_along_axis(padded, top, 1)), -1, top)
