"""Builds what acts by name: the torch network for the trainer, the policy for the rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from refork.agents.edit_scorer_policy import EditScorerPolicy

if TYPE_CHECKING:
    from refork.agents.q_networks import LogNetworks, LogShape
    from torch import nn

KINDS = ("edit_scorer", "cross_graph", "q_networks")


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"no agent {kind!r}; there are: {', '.join(KINDS)}")


def make_policy(kind: str, weights: Mapping[str, np.ndarray]) -> Any:
    """The acting policy from exported weights: EditScorerPolicy (imports no torch) or CrossGraphPolicy.

    Raises ValueError for an unknown kind.
    """
    _check(kind)
    if kind == "cross_graph":
        from refork.agents.cross_graph_policy import CrossGraphPolicy

        return CrossGraphPolicy(weights)
    return EditScorerPolicy(weights)


def make_network(kind: str, feature_names: Any, options: Mapping[str, Any], seed: int) -> nn.Module | LogNetworks:
    """The network with weights drawn from `seed` alone; torch's global generator is left as it was.

    `feature_names`: of the actions (edit_scorer); of the sites and of the supply nodes, a pair (cross_graph); a
    LogShape (q_networks, which makes networks rather than being one).
    Raises ValueError for an unknown kind or an option that its constructor does not take.
    """
    import torch
    from refork.agents.cross_graph import CrossGraph
    from refork.agents.edit_scorer import EditScorer

    _check(kind)
    if kind == "q_networks":
        return _log_networks(feature_names, options, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return {"edit_scorer": EditScorer, "cross_graph": CrossGraph}[kind](feature_names, **options)
        except TypeError as error:
            raise ValueError(f"[agent.options] of {kind}: {error}") from error


def _log_networks(shape: LogShape, options: Mapping[str, Any], seed: int) -> LogNetworks:
    from refork.agents.q_networks import LogNetworks

    try:
        return LogNetworks(shape, **options, seed=seed)
    except TypeError as error:
        raise ValueError(f"[agent.options] of q_networks: {error}") from error
