"""Builds what acts by name: the torch network for the trainer, the torch-free policy for the rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from refork.agents.edit_scorer_policy import EditScorerPolicy

if TYPE_CHECKING:
    from refork.agents.edit_scorer import EditScorer

KINDS = ("edit_scorer",)


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"no agent {kind!r}; there are: {', '.join(KINDS)}")


def make_policy(kind: str, weights: Mapping[str, np.ndarray]) -> EditScorerPolicy:
    """The acting policy from exported weights; imports no torch. Raises ValueError for an unknown kind."""
    _check(kind)
    return EditScorerPolicy(weights)


def make_network(kind: str, feature_names: Sequence[str], options: Mapping[str, Any], seed: int) -> EditScorer:
    """The network with weights drawn from `seed` alone; torch's global generator is left as it was.

    Raises ValueError for an unknown kind or an option that its constructor does not take.
    """
    import torch
    from refork.agents.edit_scorer import EditScorer

    _check(kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return EditScorer(feature_names, **options)
        except TypeError as error:
            raise ValueError(f"[agent.options] of {kind}: {error}") from error
