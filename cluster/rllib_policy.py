"""What RLlib learnt, as our own policies are exported: so it is judged, and shown, as they are, without RLlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from refork.agents.cross_graph import CrossGraph
from refork.cluster.family import Family
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.q_net_api import QNetAPI
from refork.cluster.rllib_judging import is_judged
from refork.envs.forkable import InfraFailure
from refork.envs.graph_game.instance import AGENTS
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES
from refork.trainers.config import JobConfig


def export(job: JobConfig, family: Family, algorithm: Any) -> dict[str, np.ndarray]:
    """The acting weights; {} where there is no policy of ours of that kind (cluster/rllib_judging.py)."""
    if not is_judged(family):
        return {}
    if family.experience == "games":
        return _cross_graph(job.agent.options, algorithm)
    return _table(family, _module(algorithm))


def _module(algorithm: Any) -> Any:
    """The acting network; from a log nothing samples, and the learner alone has it."""
    if algorithm.env_runner_group is None:
        return algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    return algorithm.get_module(DEFAULT_MODULE_ID)


def _cross_graph(options: Mapping[str, Any], algorithm: Any) -> dict[str, np.ndarray]:
    network = CrossGraph((SITE_FEATURES, NODE_FEATURES), **{"view": "masked", **options})
    for policy, agent in zip(network.policies, AGENTS, strict=True):
        policy.load_state_dict(algorithm.get_module(agent).policy.state_dict())
    return network.acting_weights()


def _table(family: Any, module: Any) -> dict[str, np.ndarray]:
    """The policy at every state, a head of tables for each decision maker (agents/log_policy.py)."""
    seen = state_vectors(family.source.log)
    sizes, width = family.source.spec.action.sizes, family.source.spec.action.width
    with torch.no_grad():
        found = module.forward_inference({Columns.OBS: torch.from_numpy(seen)})
    if isinstance(module, QNetAPI) and Columns.ACTION_DIST_INPUTS not in found:
        return {"q.table.rows": _rows(np.eye(sizes[0], dtype=np.float32)[found[Columns.ACTIONS].numpy()])}
    logits = found[Columns.ACTION_DIST_INPUTS].numpy()
    if logits.shape[1] != sum(sizes):
        raise InfraFailure(f"RLlib's network answers with {logits.shape[1]} numbers for {sum(sizes)} actions")
    parts = np.split(logits, np.cumsum(sizes)[:-1], axis=1)
    padded = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
    return {"logits.table.rows": np.stack(padded)}  # (decision makers, states, width)


def _rows(table: np.ndarray) -> np.ndarray:
    return table[None]


def state_vectors(log: Any) -> np.ndarray:
    """(states, F), float32: how RLlib sees each state, by its features, or by its number alone."""
    features = log.state_features
    return np.eye(log.spec.observation.size, dtype=np.float32) if features is None else features.astype(np.float32)
