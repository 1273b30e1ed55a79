"""Scores a menu of actions row by row; trains on a CPU.

Every action is described by the same features, so the network does not depend on how many actions there are. A linear
part starts at the prior, the rest starts at zero: the untrained policy is the prior.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


class EditScorer(nn.Module):
    """logits = prior-initialised linear part + ReLU network over the rows."""

    def __init__(
        self,
        feature_names: Sequence[str],
        *,
        hidden: Sequence[int] = (64, 64),
        prior: Mapping[str, float] | None = None,
    ) -> None:
        """`hidden`: widths of the network; empty: linear. `prior`: starting weights by feature name, others 0.

        Draws from torch's global generator. Raises ValueError for a name in `prior` that is no feature.
        """
        super().__init__()
        prior = prior or {}
        if unknown := sorted(set(prior) - set(feature_names)):
            raise ValueError(f"prior names no feature: {', '.join(unknown)}; there are: {', '.join(feature_names)}")
        self.feature_names = tuple(feature_names)
        self.skip = nn.Parameter(torch.tensor([float(prior.get(name, 0.0)) for name in feature_names]))
        widths = [len(self.feature_names), *hidden, 1] if hidden else []
        layers = [nn.Linear(n, m) for n, m in pairwise(widths)]
        for parameter in layers[-1].parameters() if layers else ():
            nn.init.zeros_(parameter)
        self.layers = nn.ModuleList(layers)

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        """Log-probabilities: (batch, actions, features), bool (batch, actions) -> (batch, actions), -inf where masked.

        Raises ValueError when a row of the mask leaves no action. Masked rows may hold anything, NaN too.
        """
        if not bool(mask.any(-1).all()):
            rows = (~mask.any(-1)).nonzero()[:, 0].tolist()
            raise ValueError(f"the mask leaves no action in rows {rows}: the environment must end the episode there")
        features = features.masked_fill(~mask[..., None], 0.0)
        logits = features @ self.skip
        if len(self.layers):
            hidden = features
            for layer in self.layers[:-1]:
                hidden = layer(hidden).relu()
            logits = logits + self.layers[-1](hidden)[..., 0]
        return logits.masked_fill(~mask, -torch.inf).log_softmax(-1)

    def acting_weights(self) -> dict[str, np.ndarray]:
        """What `EditScorerPolicy` needs; weights are (in, out). Copies."""
        weights = {"skip": _array(self.skip)}
        for name, parameter in self.layers.named_parameters(prefix="layers"):
            array = _array(parameter)
            weights[name] = np.ascontiguousarray(array.T) if array.ndim == 2 else array
        return weights


def _array(parameter: Tensor) -> np.ndarray:
    return parameter.detach().cpu().numpy().copy()
