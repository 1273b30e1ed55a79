"""What one operator of a game sees from its seat: observations of a fixed size, in one of three views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from gymnasium import spaces
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.observe import CAP, COUPLED, NODE_FEATURES, SITE_FEATURES, Observation

View = Literal["own", "masked", "unmasked"]
VIEWS: tuple[View, ...] = ("own", "masked", "unmasked")
SeatObservation = dict[str, np.ndarray]


@dataclass(frozen=True)
class Seat:
    """An operator's place at one game, padded to `own_size` and `partner_size` nodes; padding is 0 everywhere."""

    index: int
    """0 demand, 1 supply."""
    own_count: int
    own_size: int
    partner_size: int
    view: View
    coupling: np.ndarray
    """(own_size, partner_size), int8: 1 where the partner's node may be read; all real nodes when unmasked."""
    adjacency: np.ndarray
    """(own_size, own_size), int8: the own graph, undirected."""
    node_mask: np.ndarray
    """(own_size,), int8: 1 for real nodes."""

    @classmethod
    def of(cls, instance: Instance, index: int, sizes: tuple[int, int], view: View) -> Self:
        """`sizes`: of sites and supply nodes with padding."""
        counts = (instance.sites, instance.nodes)
        own, partner = sizes[index], sizes[1 - index]
        pairs = instance.pairs if index == 0 else instance.pairs[:, ::-1]
        coupling = np.zeros((own, partner), np.int8)
        if view == "masked":
            coupling[pairs[:, 0], pairs[:, 1]] = 1
        elif view == "unmasked":
            coupling[: counts[index], : counts[1 - index]] = 1
        adjacency = np.zeros((own, own), np.int8)
        edges = (instance.roads, instance.links)[index]
        adjacency[edges[:, 0], edges[:, 1]] = adjacency[edges[:, 1], edges[:, 0]] = 1
        node_mask = (np.arange(own) < counts[index]).astype(np.int8)
        for array in (coupling, adjacency, node_mask):  # given out again and again, so nobody may write to them
            array.setflags(write=False)
        return cls(index, counts[index], own, partner, view, coupling, adjacency, node_mask)

    def observe(self, seen: Observation) -> SeatObservation:
        """Of the only game of `seen`."""
        features = (seen.site[0], seen.node[0])
        own = _padded(features[self.index], self.own_size)
        partner = _padded(features[1 - self.index], self.partner_size)
        partner[:, -len(COUPLED) :] = 0.0  # they tell of nodes two steps away
        if self.view != "masked":
            own[:, -len(COUPLED) :] = 0.0
        legal = seen.masks[self.index][0]
        action_mask = np.zeros(self.own_size + 1, np.int8)
        action_mask[: self.own_count], action_mask[-1] = legal[:-1], legal[-1]
        return {
            "own": own,
            "partner": np.zeros_like(partner) if self.view == "own" else partner,
            "coupling": self.coupling,
            "adjacency": self.adjacency,
            "node_mask": self.node_mask,
            "action_mask": action_mask,
        }

    def move(self, action: int) -> int:
        """The game's move for an action of the padded space; -1, illegal, for one that names padding or nothing."""
        if action == self.own_size:
            return self.own_count
        return int(action) if 0 <= action < self.own_count else -1

    def action_space(self) -> spaces.Discrete:
        """Raise a node by a level, or (the last action) pass."""
        return spaces.Discrete(self.own_size + 1)

    def observation_space(self) -> spaces.Dict:
        """The same for all games padded to the same sizes, whatever the view."""
        own, partner = len(SITE_FEATURES), len(NODE_FEATURES)
        if self.index == 1:
            own, partner = partner, own
        n, m = self.own_size, self.partner_size
        return spaces.Dict(
            own=spaces.Box(-CAP, CAP, (n, own), np.float32),
            partner=spaces.Box(-CAP, CAP, (m, partner), np.float32),
            coupling=spaces.Box(0, 1, (n, m), np.int8),
            adjacency=spaces.Box(0, 1, (n, n), np.int8),
            node_mask=spaces.Box(0, 1, (n,), np.int8),
            action_mask=spaces.Box(0, 1, (n + 1,), np.int8),
        )


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    """(n, F) -> (size, F), zeros below."""
    return np.pad(rows, ((0, size - len(rows)), (0, 0)))
