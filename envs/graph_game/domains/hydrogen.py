"""Refuelling stations (demand) on hydrogen pipelines (supply).

Hydrogen comes from a few sources along the shortest pipes, 2 % is lost on every arc. A node's contract is take or pay,
and connecting it costs extra once: building supply loses until enough coupled stations exist. All limits and money are
this project's.
"""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
from refork.envs.graph_game.domains.common import operators, varied
from refork.envs.graph_game.networks import road_network, subtree_sums, tree_links

LOSS = 0.02
"""Share of the flow that is lost on an arc."""
NODES_PER_SOURCE = 20


def build(rng: np.random.Generator, sites: int, nodes: int, horizon: int) -> dict[str, Any]:
    """Fields of an Instance that this domain decides."""
    edges, place = road_network(nodes, rng)
    parent, order = _pipelines(edges, place, rng.choice(nodes, -(-nodes // NODES_PER_SOURCE), replace=False))
    row, node, coefficient = subtree_sums(parent, 1 / (1 - LOSS))
    fields = operators(rng, sites, nodes, horizon)
    return {
        **fields,
        "links": tree_links(parent),
        "row_index": row,
        "row_node": node,
        "row_coefficient": coefficient,
        "row_limit": varied(rng, nodes, 2.2) + 0.3 * np.bincount(row, minlength=nodes),
        "node_start": varied(rng, nodes, 1.5),
        "take": 0.5 * fields["node_capacity"],
        "take_price": varied(rng, nodes, 0.3),
        "node_place": place[order],
    }


def _pipelines(edges: np.ndarray, place: np.ndarray, sources: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The forest of shortest pipes: parent (M,) in an order in which it comes before its children, and that order."""
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, k, float(np.linalg.norm(place[i] - place[k]))) for i, k in edges.tolist())
    graph.add_nodes_from(range(len(place)))
    length, path = nx.multi_source_dijkstra(graph, set(map(int, sources)))
    order = np.array(sorted(length, key=lambda node: (length[node], node)))
    rank = {int(node): r for r, node in enumerate(order)}
    parent = [rank[path[int(node)][-2]] if len(path[int(node)]) > 1 else -1 for node in order]
    return np.array(parent), order
