"""The penalised target of Delphic offline learning (ICLR 2024, Section 5): a pure function."""

from __future__ import annotations

from torch import Tensor


def penalised_target(targets: Tensor, delphic: Tensor, penalty: float) -> Tensor:
    """Bellman targets (S, B) less lambda u_d(s, a) of the logged actions (S, B)."""
    return targets - penalty * delphic
