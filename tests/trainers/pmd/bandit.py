"""A game without a state to learn in a second: each round shows fresh worths of sites and pays for choosing well."""

from __future__ import annotations

import numpy as np
from refork.agents.registry import make_network, make_policy
from refork.replay.game_player import sample, taken
from refork.replay.games import PlayedGames
from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.trainer import Trainer

from tests.agents.cross_graph_cases import NODE_NAMES, SITE_NAMES, make_case

ROUNDS = 4
SIZES = [(4, 4)] * 12


def make_trainer(seed: int = 3, view: str = "masked", **options: object) -> Trainer:
    network = make_network("cross_graph", (SITE_NAMES, NODE_NAMES), {"view": view, "width": 16}, seed)
    config = AlgorithmConfig(**{"learning_rate": 0.01, "minibatch": 6, "critic_width": 8, **options})
    return Trainer(config, network, seed)


def worth(site: np.ndarray, node: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What choosing each site and each supply node pays: a site's first feature; the best of the coupled sites'."""
    best = np.full(node.shape[:2], -1.0)
    np.maximum.at(best.reshape(-1), pairs[1], site[..., 0].reshape(-1)[pairs[0]])
    return site[..., 0], best


def play(trainer: Trainer, update: int, sizes: list[tuple[int, int]] | None = None) -> PlayedGames:
    """Games by the trainer's current policy; passing pays 0."""
    case = make_case(sizes or SIZES, seed=update, degree=1)
    policy, rng = make_policy("cross_graph", trainer.weights()), np.random.default_rng([7, update])
    topology, games = case.topology, len(case.site)
    rounds = []
    for _ in range(ROUNDS):
        site, node = (
            rng.standard_normal(x.shape).astype(np.float32) * mask[..., None]
            for x, mask in ((case.site, topology.site_mask), (case.node, topology.node_mask))
        )
        log_probs = policy.log_probs(site, node, topology, case.masks)
        moves = sample(log_probs, rng.random((games, 2)))
        pays = [np.pad(w, ((0, 0), (0, 1))) for w in worth(site, node, topology.pairs)]
        rewards = np.stack([w[np.arange(games), moves[:, a]] for a, w in enumerate(pays)], 1)
        rounds.append((site, node, *case.masks, moves, taken(log_probs, moves), rewards))
    site, node, demand, supply, moves, log_probs, rewards = (np.stack(x) for x in zip(*rounds, strict=True))
    tasks = tuple(f"bandit-{i}" for i in range(games))
    return PlayedGames(
        tasks, update, topology, site, node, (demand, supply), moves, log_probs, rewards, rewards, version=update
    )


def payoff(trainer: Trainer, updates: range) -> np.ndarray:
    """Mean reward of each operator, (2,)."""
    return np.mean([play(trainer, u).rewards.mean((0, 1)) for u in updates], 0)
