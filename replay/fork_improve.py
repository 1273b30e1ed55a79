"""Better joint moves by forking: candidates are tried in copies of the games, which the policy plays on.

At decision time this is the rollout algorithm (Tesauro and Galperin, NeurIPS 1996; Bertsekas) over joint moves; its
choices, distilled back into the policy, are expert iteration (Anthony, Tian and Barber, NeurIPS 2017).
"""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from refork.replay.games import Topology

LogProbs = tuple[np.ndarray, np.ndarray]
"""(B, N + 1) and (B, M + 1), -inf where illegal."""


class GamePolicy(Protocol):
    """What acts in a batch of games: both operators, each from its own view."""

    def log_probs(
        self, site: np.ndarray, node: np.ndarray, topology: Topology, masks: tuple[np.ndarray, np.ndarray]
    ) -> LogProbs:
        """Features (B, N, FS) and (B, M, FN); masks (B, N + 1) and (B, M + 1)."""


class Seen(Protocol):
    """An observation of B games."""

    @property
    def site(self) -> np.ndarray: ...

    @property
    def node(self) -> np.ndarray: ...

    @property
    def masks(self) -> tuple[np.ndarray, np.ndarray]: ...


class Paid(Protocol):
    """What a round paid."""

    @property
    def rewards(self) -> np.ndarray: ...

    @property
    def own(self) -> np.ndarray: ...


class Games(Protocol):
    """B games in step that can be copied row by row (`envs/graph_game/game.py` has them)."""

    @property
    def t(self) -> int: ...

    @property
    def ended(self) -> bool: ...

    @property
    def topology(self) -> Topology: ...

    def observe(self) -> Seen: ...

    def step(self, actions: np.ndarray) -> Paid: ...

    def fork(self, games: np.ndarray, *, draw: int | None = None) -> Self:
        """Copies of these rows; `draw`: with that draw of the noise still to come, alike for copies of one row."""


def act(policy: GamePolicy, games: Games) -> LogProbs:
    """The policy's log-probabilities in the games as they stand."""
    seen = games.observe()
    return policy.log_probs(seen.site, seen.node, games.topology, seen.masks)


def greedy(log_probs: LogProbs) -> np.ndarray:
    """The most probable moves (B, 2)."""
    return np.stack([own.argmax(1) for own in log_probs], 1)


def candidates(log_probs: LogProbs, topology: Topology, count: int, rng: np.random.Generator) -> np.ndarray:
    """Joint moves to try, (B, count, 2): the greedy pair, then draws without replacement from each operator (Gumbel
    top-k, arXiv 1903.06059), by turns a site with the likeliest node coupled to it, a node with the likeliest site
    coupled to it, a site beside the greedy node, a node beside the greedy site."""
    noisy = [own + rng.gumbel(size=own.shape) for own in log_probs]
    drawn = [_ranked(own, count - 1) for own in noisy]  # (B, count - 1) each
    best = greedy(log_probs)[:, None]
    with_site = np.take_along_axis(_likeliest(log_probs, topology, 0), drawn[0], 1)
    with_node = np.take_along_axis(_likeliest(log_probs, topology, 1), drawn[1], 1)
    kind = np.arange(count - 1) % 4
    site = np.select([kind == 1, kind == 3], [with_node, np.broadcast_to(best[..., 0], drawn[0].shape)], drawn[0])
    node = np.select([kind == 0, kind == 2], [with_site, np.broadcast_to(best[..., 1], drawn[1].shape)], drawn[1])
    return np.concatenate([best, np.stack([site, node], 2)], 1)


def _likeliest(log_probs: LogProbs, topology: Topology, operator: int) -> np.ndarray:
    """The partner's likeliest legal move among the nodes coupled to each own one, (B, own + 1); beside pass, and where
    none of them is legal, its greedy move."""
    own, partner = log_probs[operator], log_probs[1 - operator]
    games, width, other = len(own), own.shape[1] - 1, partner.shape[1] - 1
    here, there = topology.pairs[operator], topology.pairs[1 - operator]
    score = partner[:, :-1].ravel()[there]
    order = np.lexsort((score, here))  # within a node, the likeliest last
    order = order[np.isfinite(score[order])]
    found = np.repeat(partner.argmax(1), width)
    found[here[order]] = there[order] % other
    return np.concatenate([found.reshape(games, width), partner.argmax(1)[:, None]], 1)


def _ranked(noisy: np.ndarray, count: int) -> np.ndarray:
    """The `count` best legal moves (B, count), best first; where fewer are legal, the last legal one again."""
    width = min(count, noisy.shape[1])
    order = np.argsort(-noisy, 1)[:, :width]
    legal = np.isfinite(np.take_along_axis(noisy, order, 1)).sum(1)
    places = np.minimum(np.arange(count), legal[:, None] - 1)
    return np.take_along_axis(order, places, 1)


def search(
    games: Games,
    policy: GamePolicy,
    count: int,
    rng: np.random.Generator,
    draw: int,
    margin: float = 0.0,
) -> np.ndarray:
    """The candidates (B, 2) with the greatest welfare when the policy plays on greedily to the end.

    `draw` numbers the noise that the forks meet, never the one the games themselves will meet. The policy's own moves
    stay where no candidate brings more than `margin` more: what hardly differs is not worth learning.
    """
    tried = candidates(act(policy, games), games.topology, count, rng)
    rows = np.repeat(np.arange(len(tried)), count)
    forks = games.fork(rows, draw=draw)
    welfare = forks.step(tried.reshape(-1, 2)).own.sum(1)
    while not forks.ended:
        welfare = welfare + forks.step(greedy(act(policy, forks))).own.sum(1)
    welfare = welfare.reshape(len(tried), count)
    welfare[:, 0] += margin
    best = welfare.argmax(1)
    return tried[np.arange(len(tried)), best]
