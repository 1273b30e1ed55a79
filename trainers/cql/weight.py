"""The weight of the conservative term: fixed, or the multiplier of a constraint on it (arXiv 2006.04779, eq. 30)."""

from __future__ import annotations

from collections.abc import Sequence

from refork.agents.multiplier import Multiplier
from refork.trainers.cql.config import AlgorithmConfig
from refork.trainers.cql.loss import CQLTerms, multiplier_loss
from refork.trainers.offline import Objective
from torch import Tensor, nn


def alpha_networks(config: AlgorithmConfig, members: int) -> dict[str, nn.Module]:
    """What is learnt of it."""
    return {} if config.gap is None else {"alpha": Multiplier(members, config.alpha)}


def alpha_of(config: AlgorithmConfig, networks: nn.ModuleDict) -> float | Tensor:
    """As it is now, (K,) without gradient or a number."""
    weight: Tensor | float = config.alpha if config.gap is None else networks["alpha"]().detach()
    return weight


def alpha_objectives(config: AlgorithmConfig, networks: nn.ModuleDict, terms: CQLTerms) -> Sequence[Objective]:
    """How it learns."""
    if config.gap is None:
        return []
    return [Objective(("alpha",), multiplier_loss(networks["alpha"](), terms.conservative - config.gap))]
