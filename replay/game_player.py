"""Plays a batch of games to its end. What a game draws comes from its own key, whatever it is played beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from refork.replay.fork_improve import GamePolicy, Games, LogProbs, Seen, greedy, search
from refork.replay.game_pack import GamePack
from refork.replay.games import ImproveConfig, PlayedGames
from refork.replay.seeding import generator


@dataclass(frozen=True)
class Draws:
    """All that is drawn for the B games of a pack, ahead."""

    noise_seeds: tuple[int, ...]
    """(B)"""
    moves: np.ndarray
    """(T, B, 2), uniform in [0, 1): what moves are sampled with."""
    searched: np.ndarray
    """(T, B), uniform in [0, 1): a round is searched where it is below the share asked for."""
    candidates: np.random.Generator
    """For the pack as a whole."""


def draw(pack: GamePack, horizon: int) -> Draws:
    """From (seed, task, episode, attempt) of each game, and for the candidates from the first one's."""
    first = pack.requests[0]
    rngs = [
        generator(request.seed, f"game/{request.task}", request.episode, attempt)
        for request in pack.requests
        for attempt in range(request.size)
    ]
    return Draws(
        tuple(int(rng.integers(2**31)) for rng in rngs),
        np.stack([rng.random((horizon, 2)) for rng in rngs], 1),
        np.stack([rng.random(horizon) for rng in rngs], 1),
        generator(first.seed, f"candidates/{first.task}", first.episode),
    )


@dataclass(frozen=True)
class Choice:
    """Moves of B games in one round."""

    moves: np.ndarray
    """(B, 2), int64."""
    log_probs: np.ndarray
    """(B, 2), float32; 0 where no policy drew them."""
    teacher: np.ndarray | None = None
    """(B, 2), int64: moves found to be better, -1 where none was looked for."""


class Chooser(Protocol):
    """Chooses the moves of a round. Called once a round, from the first on."""

    def __call__(self, games: Games, seen: Seen) -> Choice: ...


@dataclass(frozen=True)
class Sampled:
    """Moves drawn from the policy; better ones are searched for in a share of the rounds."""

    policy: GamePolicy
    draws: Draws
    improve: ImproveConfig | None = None

    def __call__(self, games: Games, seen: Seen) -> Choice:
        log_probs = self.policy.log_probs(seen.site, seen.node, games.topology, seen.masks)
        moves = sample(log_probs, self.draws.moves[games.t])
        return Choice(moves, taken(log_probs, moves), self._teacher(games))

    def _teacher(self, games: Games) -> np.ndarray | None:
        if self.improve is None:
            return None
        rows = np.flatnonzero(self.draws.searched[games.t] < self.improve.states)
        teacher = np.full((self.draws.searched.shape[1], 2), -1)
        if len(rows):
            forks = games.fork(rows)
            count, rng = self.improve.candidates, self.draws.candidates
            teacher[rows] = search(forks, self.policy, count, rng, 1 + games.t, self.improve.margin)
        return teacher


@dataclass(frozen=True)
class Greedy:
    """The most probable moves; with `candidates`, the best of so many that are tried by forking at every round."""

    policy: GamePolicy
    draws: Draws
    candidates: int = 0

    def __call__(self, games: Games, seen: Seen) -> Choice:
        log_probs = self.policy.log_probs(seen.site, seen.node, games.topology, seen.masks)
        moves = greedy(log_probs)
        if self.candidates:
            moves = search(games, self.policy, self.candidates, self.draws.candidates, 1 + games.t)
        return Choice(moves, taken(log_probs, moves))


@dataclass(frozen=True)
class Ruled:
    """Moves of a heuristic, a function of the games (B, 2)."""

    rule: Callable[[Games], np.ndarray]

    def __call__(self, games: Games, seen: Seen) -> Choice:
        moves = self.rule(games)
        return Choice(moves, np.zeros(moves.shape, np.float32))


def play(games: Games, pack: GamePack, choose: Chooser, draws: Draws, version: int, behaviour: str) -> PlayedGames:
    """The games of a pack, from their first round to their end."""
    topology = games.topology
    seen, chosen, paid = [], [], []
    while not games.ended:
        seen.append(games.observe())
        chosen.append(choose(games, seen[-1]))
        paid.append(games.step(chosen[-1].moves))
    teachers = [c.teacher for c in chosen if c.teacher is not None]
    return PlayedGames(
        pack.tasks,
        pack.requests[0].episode,
        topology,
        np.stack([s.site for s in seen]),
        np.stack([s.node for s in seen]),
        (np.stack([s.masks[0] for s in seen]), np.stack([s.masks[1] for s in seen])),
        np.stack([c.moves for c in chosen]),
        np.stack([c.log_probs for c in chosen]),
        np.stack([p.rewards for p in paid]),
        np.stack([p.own for p in paid]),
        np.stack(teachers) if teachers else None,
        version,
        behaviour,
        pack.attempts,
        draws.noise_seeds,
    )


def sample(log_probs: LogProbs, uniforms: np.ndarray) -> np.ndarray:
    """One move of each operator, (B, 2), from `uniforms` (B, 2) in [0, 1); never one of probability 0."""
    return np.stack([_sample(own, uniforms[:, agent]) for agent, own in enumerate(log_probs)], 1)


def _sample(log_probs: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    probabilities = np.exp(log_probs, dtype=np.float64)
    cumulative = probabilities.cumsum(1)
    index = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(1)
    last = probabilities.shape[1] - 1 - (probabilities[:, ::-1] > 0).argmax(1)
    return np.minimum(index, last)


def taken(log_probs: LogProbs, moves: np.ndarray) -> np.ndarray:
    """Log-probabilities (B, 2) of `moves` (B, 2), float32."""
    rows = np.arange(len(moves))
    return np.stack([own[rows, moves[:, agent]] for agent, own in enumerate(log_probs)], 1).astype(np.float32)
