"""Random rounds to clear, what a flow is worth, and by how much it breaks a limit."""

import numpy as np
from refork.envs.graph_game.batch import Batch, stack
from refork.envs.graph_game.clearing import Round
from refork.envs.graph_game.generate import make_instance

DOMAINS = ("charging", "hydrogen", "vaccine")


def random_batch(seed: int, games: int = 1, largest: int = 14) -> Batch:
    rng = np.random.default_rng(seed)
    names = (
        f"{rng.choice(DOMAINS)}-{rng.choice(['regular', 'irregular'])}-n{rng.integers(3, largest + 1)}-{seed + k}"
        for k in range(games)
    )
    return stack([make_instance(name) for name in names])


def random_round(batch: Batch, seed: int, *, knees: bool, decades: int = 0) -> Round:
    """Levels from 0 to 3; limits are spread over that many powers of ten, downwards."""
    rng = np.random.default_rng(seed)

    def limits(mask: np.ndarray) -> np.ndarray:
        scale = 10.0 ** -rng.integers(0, decades + 1, mask.shape)
        return rng.integers(0, 4, mask.shape) * rng.uniform(0.1, 1.5, mask.shape) * scale * mask

    site, node = batch.topology.pairs
    shape = (batch.games, batch.sites)
    price = batch.site["price"]
    bent = rng.random(shape) < (0.5 if knees else 0.0)
    return Round(
        limits(batch.topology.site_mask),
        limits(batch.topology.node_mask),
        price.ravel()[site] + batch.node["tariff"].ravel()[node],
        np.where(bent, rng.uniform(0, 2, shape), np.inf),
        np.where(bent, price * rng.uniform(0, 1, shape), 0.0),
    )


def through(batch: Batch, flow: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units at each flat site and each flat node."""
    site, node = batch.topology.pairs
    return (
        np.bincount(site, flow, batch.games * batch.sites),
        np.bincount(node, flow, batch.games * batch.nodes),
    )


def worth(batch: Batch, now: Round, flow: np.ndarray) -> float:
    served, _ = through(batch, flow)
    late = np.maximum(0.0, served - now.knee.ravel())
    return float((now.value * flow).sum() - (now.drop.ravel() * late).sum())


def excess(batch: Batch, now: Round, flow: np.ndarray) -> float:
    """The most by which a limit is broken, or a flow is negative; at most 0 for a feasible one."""
    served, given = through(batch, flow)
    first, second = batch.topology.roads
    load = np.bincount(batch.rows.index, batch.rows.coefficient * given[batch.rows.node], len(batch.rows.limit))
    gaps = (
        served - now.site_limit.ravel(),
        given - now.node_limit.ravel(),
        served[first] + served[second] - batch.road_limit,
        load - batch.rows.limit,
        -flow,
    )
    return float(max(gap.max() for gap in gaps if len(gap)))
