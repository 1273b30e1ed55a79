"""Who depends on whom: biregular couplings, and the way from there to irregular ones at an equal number of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CouplingStats:
    """How irregular a coupling is."""

    degree_cv: float
    """Coefficient of variation of the supply nodes' degrees; 0 for a biregular coupling of as many nodes as sites."""
    single_sites: float
    """Share of sites with one supply node."""


def biregular(sites: int, nodes: int, degree: int, rng: np.random.Generator) -> np.ndarray:
    """Pairs (sites * degree, 2): every site has `degree` nodes, the nodes' degrees differ by at most one.

    Raises ValueError for a degree beyond the number of nodes.
    """
    if not 1 <= degree <= nodes:
        raise ValueError(f"degree {degree}: must be 1 to the number of nodes, {nodes}")
    slots = np.arange(sites * degree)
    site_names, node_names = rng.permutation(sites), rng.permutation(nodes)
    return sort_pairs(np.stack([site_names[slots // degree], node_names[slots % nodes]], 1))


def rewire(
    pairs: np.ndarray, sites: int, nodes: int, fraction: float, rng: np.random.Generator, exponent: float = 1.0
) -> np.ndarray:
    """Move that share of the pairs: the site end at random, the supply end by Zipf's law over a random ranking.

    The number of pairs stays, no pair occurs twice, and every site keeps at least one.
    """
    popularity = np.arange(1, nodes + 1) ** -exponent
    popularity = rng.permutation(popularity / popularity.sum())
    kept = {(int(i), int(j)) for i, j in pairs}
    degree = np.bincount(pairs[:, 0], minlength=sites)
    for index in rng.permutation(len(pairs))[: round(fraction * len(pairs))]:
        site, node = (int(v) for v in pairs[index])
        new_site = site if degree[site] == 1 else int(rng.integers(sites))
        free = np.array([(new_site, j) not in kept for j in range(nodes)]) * popularity
        if free.sum() == 0:
            continue
        kept.remove((site, node))
        kept.add((new_site, int(rng.choice(nodes, p=free / free.sum()))))
        degree[site] -= 1
        degree[new_site] += 1
    return sort_pairs(np.array(sorted(kept), np.int64))


def sort_pairs(pairs: np.ndarray) -> np.ndarray:
    """By site, then node."""
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))].astype(np.int64)


def coupling_stats(pairs: np.ndarray, sites: int, nodes: int) -> CouplingStats:
    """Of pairs (P, 2)."""
    by_node = np.bincount(pairs[:, 1], minlength=nodes)
    by_site = np.bincount(pairs[:, 0], minlength=sites)
    return CouplingStats(float(by_node.std() / by_node.mean()), float((by_site == 1).mean()))
