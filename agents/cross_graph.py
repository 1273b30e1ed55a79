"""Own-graph encoder and attention over the coupled partner nodes; one set of weights plays games of any size.

Per operator: message passing over its own graph, then attention whose keys are partner nodes (encoded one by one, so
what is seen of the partner is one hop away), masked by the coupling. A learned null key stands for "no partner". A
head's slice of a node's encoding is both its key and its value (the maps before and after it make up for that).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.cross_graph_body import VIEWS, Body, NodeHead, View
from refork.agents.cross_graph_ops import masked_log_softmax
from refork.agents.cross_graph_wiring import Side, Wiring
from torch import Tensor, nn

SHARPNESS = 4.0
"""How fast a prior falls with a score's distance to the best one, per unit of the score."""


class OperatorPolicy(nn.Module):
    """pi(. | what one operator sees)."""

    def __init__(self, body: Body, width: int, prior: float) -> None:
        super().__init__()
        self.body, self.head = body, NodeHead(width, 0.01)
        self.prior = nn.Parameter(torch.tensor(float(prior))) if prior > 0 else None

    def forward(self, own: Tensor, partner: Tensor, side: Side, mask: Tensor) -> Tensor:
        """(R N, FO), (R M, FP), bool (R, N + 1) -> log-probabilities (R, N + 1), -inf where masked; pass is the last.

        Raises ValueError when a row of the mask leaves no move.
        """
        logits = self.head(self.body(own, partner, side), side)
        if self.prior is not None:
            logits = logits + self.prior * _hinted(own, side)
        return masked_log_softmax(logits, mask)


def _hinted(own: Tensor, side: Side) -> Tensor:
    """(R, N + 1) in (-1, 1] from the last three features (R N, FO): what a rule makes of raising each node alone or
    with a partner, and a flag at its move (none: it passes).

    The flagged move has the greatest; the others fall with their score's distance to the best one (pass scores 0), so
    that what is nearly as good is tried before what is not.
    """
    alone, pair, flags = own[:, -3:].unbind(1)
    score, flags = torch.maximum(alone, pair).view(side.games, -1), flags.view(side.games, -1)
    if side.padded:
        score, flags = score.masked_fill(~side.own_mask, -torch.inf), flags.masked_fill(~side.own_mask, 0.0)
    score = torch.cat([score, score.new_zeros(side.games, 1)], 1)
    nearness = (SHARPNESS * (score - score.amax(1, keepdim=True))).exp() - 1
    return torch.cat([flags, 1 - flags.sum(1, keepdim=True)], 1) + 0.9 * nearness


class CrossGraph(nn.Module):
    """The policies of both operators, demand and supply."""

    def __init__(
        self,
        feature_names: tuple[Sequence[str], Sequence[str]],
        *,
        view: View = "masked",
        width: int = 32,
        heads: int = 2,
        rounds: int = 2,
        prior: float = 0.0,
        coupled: int | None = None,
    ) -> None:
        """`feature_names`: of sites and of supply nodes. `view`: what an operator sees of the partner: nothing (own),
        the nodes coupled to its own (masked), or all (unmasked). `width`: of every layer. `heads`: of the attention.
        `rounds`: of message passing. `prior`: scale, learned on from there, of the logits that the scores and the move
        of a decentralised rule (the last three features) begin with; 0: no feature that only the coupling tells is
        looked at. `coupled`: how many these are, the last ones; None: those named `coupled_...`.

        Draws from torch's global generator. Raises ValueError for an unknown view or sizes that do not fit.
        """
        super().__init__()
        if view not in VIEWS:
            raise ValueError(f"view {view!r}; there are: {', '.join(VIEWS)}")
        if heads < 1 or rounds < 0:
            raise ValueError(f"heads {heads} must be at least 1, rounds {rounds} at least 0")
        if prior < 0 or (prior > 0 and view != "masked"):
            raise ValueError(f"prior {prior:g} must be at least 0, and 0 unless the view is masked")
        self.view, self.width, self.heads, self.rounds, self.prior = view, width, heads, rounds, prior
        told = [name for name in feature_names[0] if name.startswith("coupled_")]
        self.coupled = len(told) if coupled is None else coupled
        self.feature_counts = (len(feature_names[0]), len(feature_names[1]))
        self.policies = nn.ModuleList(OperatorPolicy(self.body(a, width), width, prior) for a in range(2))

    def body(self, operator: int, width: int, extra: int = 0, view: View | None = None) -> Body:
        """A fresh body for an operator, with `extra` partner features; `view` None: the agent's.

        Raises ValueError for a width that the heads do not divide.
        """
        if width < 1 or width % self.heads:
            raise ValueError(f"width {width} must be a positive multiple of heads {self.heads}")
        own, partner = self.feature_counts[operator], self.feature_counts[1 - operator] - self.coupled + extra
        own -= 0 if self.prior > 0 else self.coupled
        return Body(own, partner, width, self.heads, self.rounds, view or self.view)

    def forward(
        self, features: tuple[Tensor, Tensor], wiring: Wiring, masks: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Features (R N, FS), (R M, FN), masks (R, N + 1), (R, M + 1) -> log-probabilities shaped as the masks."""
        demand, supply = (self.policies[a](features[a], features[1 - a], wiring.sides[a], masks[a]) for a in range(2))
        return demand, supply

    def acting_weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights, float32, and `options`, int64: what `CrossGraphPolicy` needs."""
        hints = (int(self.prior > 0), self.coupled)
        options = [VIEWS.index(self.view), self.width, self.heads, self.rounds, *self.feature_counts, *hints]
        arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}
        return {**arrays, "options": np.array(options, np.int64)}
