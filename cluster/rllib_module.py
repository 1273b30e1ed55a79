"""The cross-graph network of one operator as an RLModule: the same policy and critic that our own trainer uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_body import pool
from refork.agents.cross_graph_critic import ValueCritic
from refork.agents.cross_graph_wiring import Side, wire
from refork.envs.graph_game.instance import AGENTS
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES
from refork.envs.topology import Topology
from torch import Tensor

Batch = dict[str, Any]
LOWEST = torch.finfo(torch.float32).min
"""Stands for the log-probability of an illegal move: RLlib's distributions do arithmetic that -inf does not survive."""


@dataclass(frozen=True)
class _Read:
    """A batch of R observations as the network takes them."""

    own: Tensor
    """(R N, FO)"""
    partner: Tensor
    """(R M, FP)"""
    side: Side
    mask: Tensor
    """(R, N + 1), bool."""


class CrossGraphRLModule(TorchRLModule, ValueFunctionAPI):
    """pi and V of the operator that `model_config["agent"]` names.

    `model_config` holds the options of CrossGraph as `network`, and `critic_width`, beside what RLlib adds. Weights do
    not depend on the size of the game.
    """

    def setup(self) -> None:
        options: Any = self.model_config
        operator = AGENTS.index(options["agent"])
        network = CrossGraph((SITE_FEATURES, NODE_FEATURES), **options["network"])
        critic = ValueCritic(network, options["critic_width"])
        self.heads = network.heads
        self.policy = network.policies[operator]
        self.critic, self.readout = critic.bodies[operator], critic.heads[operator]
        self.action_dist_cls = TorchCategorical
        self._wired: tuple[tuple[bytes, ...], Side] | None = None

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        """Log-probabilities (R, N + 1). Raises ValueError when a mask leaves no move."""
        seen = self._read(batch[Columns.OBS])
        log_probs = self.policy(seen.own, seen.partner, seen.side, seen.mask)
        return {Columns.ACTION_DIST_INPUTS: log_probs.clamp(min=LOWEST)}

    def compute_values(self, batch: Batch, embeddings: Any = None) -> Tensor:
        """(R,); nothing is shared with the policy, so there are no embeddings to use."""
        seen = self._read(batch[Columns.OBS])
        return self.readout(pool(self.critic(seen.own, seen.partner, seen.side), seen.side))[:, 0]

    def _read(self, observations: dict[str, Tensor]) -> _Read:
        own, partner = (observations[name].flatten(0, 1) for name in ("own", "partner"))
        return _Read(own, partner, self._side(observations), observations["action_mask"].bool())

    def _side(self, observations: dict[str, Tensor]) -> Side:
        """Index arrays of the batch; those of the last one when the graphs are the same, as they mostly are."""
        graphs = [observations[name].cpu().numpy() for name in ("coupling", "adjacency", "node_mask")]
        key = tuple(graph.astype(np.bool_).tobytes() for graph in graphs)
        if self._wired is None or self._wired[0] != key:
            self._wired = key, _wire(*graphs, heads=self.heads)
        return self._wired[1]


def _wire(coupling: np.ndarray, adjacency: np.ndarray, node_mask: np.ndarray, *, heads: int) -> Side:
    """Of (R, N, M), (R, N, N), (R, N): the own nodes stand where a topology has sites."""
    own, partner = coupling.shape[1:]
    game, i, j = coupling.nonzero()
    pairs = np.stack([game * own + i, game * partner + j]).astype(np.int64)
    game, i, k = np.triu(adjacency).nonzero()
    edges = np.stack([game * own + i, game * own + k]).astype(np.int64)
    readable = np.asarray(coupling.any(1))  # nodes that nobody may read are as good as padding
    topology = Topology(node_mask.astype(np.bool_), readable, pairs, edges, np.zeros((2, 0), np.int64))
    return wire(topology, 1, heads).sides[0]
