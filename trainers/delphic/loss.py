"""The penalised target of Delphic offline learning (ICLR 2024, Section 5): a pure function."""

from __future__ import annotations

from torch import Tensor


def penalised_target(targets: Tensor, delphic: Tensor, penalty: float, measure: str) -> Tensor:
    """Bellman targets (S, B) less lambda u_d(s, a); `delphic`: variance of the logged actions' values, (S, B).

    `measure`: take the variance, or its square root (deviation).
    """
    return targets - penalty * (delphic.sqrt() if measure == "deviation" else delphic)
