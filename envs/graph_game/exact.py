"""The round's clearing as a linear program, solved exactly: one sparse program for all games of a batch (HiGHS)."""

from __future__ import annotations

import numpy as np
from refork.envs.graph_game.batch import Batch
from refork.envs.graph_game.clearing import Round, within_limits
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, hstack, vstack


def clear_exactly(batch: Batch, now: Round) -> np.ndarray:
    """As `clearing.clear`, of the greatest value. Raises RuntimeError when the solver fails."""
    flow = np.zeros(batch.topology.pairs.shape[1])
    site, node = batch.topology.pairs
    chosen = np.flatnonzero((now.site_limit.ravel()[site] > 0) & (now.node_limit.ravel()[node] > 0) & (now.value > 0))
    if not len(chosen):
        return flow
    through_site = _incidence(site[chosen], now.site_limit.size)
    through_node = _incidence(node[chosen], now.node_limit.size)
    rows, roads = batch.rows, batch.topology.roads
    limits = csr_matrix((rows.coefficient, (rows.index, rows.node)), (len(rows.limit), now.node_limit.size))
    blocks = [through_site, through_node, through_site[roads[0]] + through_site[roads[1]], limits @ through_node]
    bounds = [now.site_limit.ravel(), now.node_limit.ravel(), batch.road_limit, rows.limit]
    bent = np.flatnonzero((now.drop.ravel() > 0) & (now.knee < now.site_limit).ravel())
    late = csr_matrix((np.ones(len(bent)), (np.arange(len(bent)), np.arange(len(bent)))), (len(bent), len(bent)))
    early = hstack([through_site[bent], -late])  # served - late <= knee
    kept, limit = _useful(vstack(blocks).tocsr(), np.concatenate(bounds))
    kept = hstack([kept, csr_matrix((kept.shape[0], len(bent)))])
    solved = linprog(
        np.concatenate([-now.value[chosen], now.drop.ravel()[bent]]),
        A_ub=vstack([kept, early]),
        b_ub=np.concatenate([limit, np.maximum(0.0, now.knee.ravel()[bent])]),
        method="highs",
    )
    if solved.status != 0:
        raise RuntimeError(f"exact clearing: {solved.message}")
    flow[chosen] = np.maximum(0.0, solved.x[: len(chosen)])
    return within_limits(batch, now, flow)  # the solver's tolerance is 1e-7


def _useful(rows: csr_matrix, limit: np.ndarray) -> tuple[csr_matrix, np.ndarray]:
    """Without the empty rows."""
    kept = np.diff(rows.indptr) > 0
    return rows[kept], limit[kept]


def _incidence(ends: np.ndarray, count: int) -> csr_matrix:
    """(count, P): 1 where the pair ends."""
    return csr_matrix((np.ones(len(ends)), (ends, np.arange(len(ends)))), (count, len(ends)))
