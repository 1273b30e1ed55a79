"""Played games as minibatches of tensors. Rows are rounds x games: row t * G + g is round t of game g of the part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from refork.agents.cross_graph_wiring import Wiring, wire
from refork.envs.topology import Topology
from refork.replay.games import PlayedGames
from torch import Tensor

ROWS = 4096
"""Most node rows of a part: larger ones fall out of the processor's cache (measured: 1.4 times slower a row)."""


@dataclass(frozen=True)
class Part:
    """G whole games of one padded size; R = T * G. A minibatch is one or several parts."""

    games: int
    rounds: int
    wiring: Wiring
    features: tuple[Tensor, Tensor]
    """(R N, FS), (R M, FN), float32."""
    masks: tuple[Tensor, Tensor]
    """(R, N + 1), (R, M + 1), bool."""
    actions: Tensor
    """(R, 2), int64."""
    behaviour: Tensor
    """(R, 2), float32: log-probabilities of the actions as they were when played."""
    rewards: Tensor
    """(T, G, 2), float32."""
    teacher: Tensor | None
    """(R, 2), int64, -1 where there is none."""


@dataclass
class Judged:
    """What the iteration's frozen networks say about a part."""

    old: tuple[Tensor, Tensor]
    """Log-probabilities (R, N + 1), (R, M + 1)."""
    advantages: Tensor
    """(R, 2)."""
    targets: Tensor
    """(R, 2): lambda-returns."""
    magnet: tuple[Tensor, Tensor] | None = field(default=None)


def minibatches(experience: Sequence[PlayedGames], size: int, heads: int, rng: np.random.Generator) -> list[list[Part]]:
    """Whole games in random minibatches of about `size` (0: one), none much smaller than the others."""
    groups = _by_shape(experience)
    index = [(g, b) for g, group in enumerate(groups) for b in range(len(group.tasks))]
    count = -(-len(index) // size) if size else 1
    order = rng.permutation(len(index))
    return [_parts(groups, [index[i] for i in chosen], heads) for chosen in np.array_split(order, count)]


def _by_shape(experience: Sequence[PlayedGames]) -> list[PlayedGames]:
    groups: dict[tuple[int, ...], list[PlayedGames]] = defaultdict(list)
    for games in experience:
        groups[len(games.site), games.site.shape[2], games.node.shape[2]].append(games)
    return [_join(group) for group in groups.values()]


def _parts(groups: Sequence[PlayedGames], chosen: Sequence[tuple[int, int]], heads: int) -> list[Part]:
    parts = []
    for g, group in enumerate(groups):
        games = np.array([b for other, b in chosen if other == g], np.int64)
        rows = len(group.site) * max(group.site.shape[2], group.node.shape[2])
        for some in np.array_split(games, -(-len(games) * rows // ROWS)) if len(games) else ():
            if len(some):
                parts.append(_part(group.take(some), heads))
    return parts


def _part(games: PlayedGames, heads: int) -> Part:
    rounds, count = games.actions.shape[:2]
    return Part(
        count,
        rounds,
        wire(games.topology, rounds, heads),
        (_rows(games.site, 3), _rows(games.node, 3)),
        (_rows(games.masks[0], 2), _rows(games.masks[1], 2)),
        _rows(games.actions, 2),
        _rows(games.log_probs, 2),
        torch.from_numpy(games.rewards.astype(np.float32)),
        None if games.teacher is None else _rows(games.teacher, 2),
    )


def _rows(array: np.ndarray, lead: int) -> Tensor:
    """Merge the first `lead` dimensions."""
    return torch.from_numpy(np.ascontiguousarray(array)).flatten(0, lead - 1)


def _join(group: Sequence[PlayedGames]) -> PlayedGames:
    """Batches of equal shape as one."""
    if len(group) == 1:
        return group[0]
    teachers = [g.teacher if g.teacher is not None else np.full_like(g.actions, -1) for g in group]

    def together(name: str) -> Any:
        return np.concatenate([getattr(g, name) for g in group], 1)

    return replace(
        group[0],
        tasks=tuple(task for g in group for task in g.tasks),
        topology=_join_topologies([g.topology for g in group]),
        masks=(np.concatenate([g.masks[0] for g in group], 1), np.concatenate([g.masks[1] for g in group], 1)),
        teacher=np.concatenate(teachers, 1) if any(g.teacher is not None for g in group) else None,
        attempts=(),
        noise_seeds=(),
        **{name: together(name) for name in ("site", "node", "actions", "log_probs", "rewards", "own")},
    )


def _join_topologies(parts: Sequence[Topology]) -> Topology:
    sites = np.cumsum([0, *(p.site_mask.size for p in parts[:-1])])
    nodes = np.cumsum([0, *(p.node_mask.size for p in parts[:-1])])
    shifts = list(zip(sites, nodes, strict=True))
    return Topology(
        np.concatenate([p.site_mask for p in parts]),
        np.concatenate([p.node_mask for p in parts]),
        np.concatenate([p.pairs + np.array([[s], [n]]) for p, (s, n) in zip(parts, shifts, strict=True)], 1),
        np.concatenate([p.roads + s for p, (s, _) in zip(parts, shifts, strict=True)], 1),
        np.concatenate([p.links + n for p, (_, n) in zip(parts, shifts, strict=True)], 1),
    )
