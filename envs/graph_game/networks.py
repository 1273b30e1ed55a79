"""Random networks to put games on, and trees as sums over what lies downstream."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial import distance_matrix


def road_network(sites: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A connected geometric graph: edges (E, 2) with i < k, and places (sites, 2) in the unit square.

    Sites within a radius that gives about four neighbours, joined by the shortest spanning tree.
    """
    place = rng.random((sites, 2))
    near = nx.random_geometric_graph(sites, float(np.sqrt(4 / np.pi / sites)), pos=dict(enumerate(place)))
    tree = minimum_spanning_tree(distance_matrix(place, place)).tocoo()
    near.add_edges_from(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
    edges = np.array(sorted((min(e), max(e)) for e in near.edges), np.int64).reshape(-1, 2)
    return edges, place


def paths_to_root(parent: np.ndarray) -> list[list[int]]:
    """For each node of a forest, itself and its ancestors, upwards; `parent` (M,) is -1 at a root, else smaller."""
    paths: list[list[int]] = []
    for node, up in enumerate(parent):
        paths.append([node, *(paths[up] if up >= 0 else [])])
    return paths


def subtree_sums(parent: np.ndarray, gain: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, one per node k: the flow into k that serves all nodes below, `gain` more per arc on the way.

    Returns row, node and coefficient of the entries, sorted by row.
    """
    entries = [
        (row, node, gain ** (hops + 1))
        for node, path in enumerate(paths_to_root(parent))
        for hops, row in enumerate(path)
    ]
    row, node, coefficient = (np.array(v) for v in zip(*sorted(entries), strict=True))
    return row.astype(np.int64), node.astype(np.int64), coefficient.astype(np.float64)


def tree_links(parent: np.ndarray) -> np.ndarray:
    """Edges (F, 2) from upstream to downstream; roots are joined in a row, so that the graph is connected."""
    roots = np.flatnonzero(parent < 0)
    edges = [(int(up), node) for node, up in enumerate(parent) if up >= 0] + list(pairwise(map(int, roots)))
    return np.array(sorted(edges), np.int64).reshape(-1, 2)
