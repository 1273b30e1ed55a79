"""The cross-graph network as it acts, rebuilt from exported weights; one call answers for all games of a batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_body import VIEWS
from refork.agents.cross_graph_wiring import Wiring, wire
from refork.envs.topology import Topology
from torch import Tensor


class CrossGraphPolicy:
    """pi(. | observation) of both operators from the weights that `CrossGraph.acting_weights` exports."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        view, width, heads, rounds, sites, nodes, prior, coupled = (int(x) for x in weights["options"])
        names = ([""] * sites, [""] * nodes)
        with torch.random.fork_rng(devices=[]):
            self._network = CrossGraph(
                names, view=VIEWS[view], width=width, heads=heads, rounds=rounds, prior=prior, coupled=coupled
            )
        state = {name: torch.from_numpy(array) for name, array in weights.items() if name != "options"}
        self._network.load_state_dict(state)
        self._network.requires_grad_(False)
        self._wired: tuple[Topology, Wiring] | None = None

    def log_probs(
        self, site: np.ndarray, node: np.ndarray, topology: Topology, masks: tuple[np.ndarray, np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """One round of B games: (B, N, FS), (B, M, FN), bool (B, N + 1), (B, M + 1) -> float32, shaped as the masks.

        -inf where masked. Raises ValueError when a row of a mask leaves no move.
        """
        with torch.inference_mode():
            features = (_rows(site), _rows(node))
            legal = (torch.from_numpy(masks[0]), torch.from_numpy(masks[1]))
            demand, supply = self._network(features, self._wiring(topology), legal)
        return demand.numpy(), supply.numpy()

    def _wiring(self, topology: Topology) -> Wiring:
        """A game keeps its topology from round to round."""
        if self._wired is None or self._wired[0] is not topology:
            self._wired = topology, wire(topology, 1, self._network.heads)
        return self._wired[1]


def _rows(features: np.ndarray) -> Tensor:
    """(B, N, F) -> (B N, F)."""
    return torch.from_numpy(np.ascontiguousarray(features)).view(-1, features.shape[-1])
