"""Made-up batches of games for the tests of the cross-graph network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.registry import make_network
from refork.envs.topology import Topology

SITE_NAMES, NODE_NAMES = ("a", "b", "c"), ("d", "e", "f", "g")


@dataclass(frozen=True)
class Case:
    """One round of B games, padded to N and M."""

    topology: Topology
    site: np.ndarray
    node: np.ndarray
    masks: tuple[np.ndarray, np.ndarray]


def make_case(sizes: list[tuple[int, int]], seed: int = 0, pad: tuple[int, int] | None = None, degree: int = 2) -> Case:
    """Games of these (sites, nodes), each drawn from `seed` and its place in the list alone."""
    pad = pad or (max(n for n, _ in sizes), max(m for _, m in sizes))
    shape = (len(sizes), *pad)
    masks = [np.zeros((len(sizes), p), np.bool_) for p in pad]
    site, node = (
        np.zeros((len(sizes), p, len(f)), np.float32) for p, f in zip(pad, (SITE_NAMES, NODE_NAMES), strict=True)
    )
    legal = [np.zeros((len(sizes), p + 1), np.bool_) for p in pad]
    edges: list[list[np.ndarray]] = [[], [], []]
    for b, (n, m) in enumerate(sizes):
        rng = np.random.default_rng([seed, b])
        site[b, :n], node[b, :m] = rng.standard_normal((n, 3)), rng.standard_normal((m, 4))
        for a, count in enumerate((n, m)):
            masks[a][b, :count] = True
            legal[a][b, :count] = rng.random(count) < 0.7
            legal[a][b, -1] = True
        coupled = sorted({(i, int(j)) for i in range(1, n) for j in rng.choice(m, min(degree, m), replace=False)})
        edges[0].append(np.array(coupled, np.int64).reshape(-1, 2).T + np.array([[b * shape[1]], [b * shape[2]]]))
        for a, count in enumerate((n, m)):
            tree = np.array([(i, int(rng.integers(0, i))) for i in range(1, count)], np.int64).reshape(-1, 2)
            edges[a + 1].append(tree.T + b * shape[a + 1])
    joined = [np.concatenate(e, 1) for e in edges]
    return Case(Topology(masks[0], masks[1], *joined), site, node, (legal[0], legal[1]))


def make_agent(options: Mapping[str, Any] | None = None, seed: int = 1, spread: float = 0.1) -> CrossGraph:
    """An agent whose weights are shaken, so that its policy is far from uniform."""
    network = make_network("cross_graph", (SITE_NAMES, NODE_NAMES), options or {}, seed)
    assert isinstance(network, CrossGraph)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += spread * torch.randn(parameter.shape, generator=rng)
    return network
