"""Policy objectives of one operator, side by side: tensors in, a frozen dataclass of terms out.

Log-probabilities are (R, moves), -inf at illegal moves by the mask that was stored when the move was made; old and new
policy share it, so no KL is ever infinite. With stochastic gradients a KL term is a penalty, not the exact step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.trainers.surrogate import chosen, entropy
from torch import Tensor


@dataclass(frozen=True)
class Objective:
    """Weights of the terms; a term of weight 0, or None, is left out."""

    clip: float | None = None
    """Ratio clip (PPO, arXiv 1707.06347, eq. 7); None: no clip."""
    forward: float = 0.0
    """Weight of KL(new || old): 1 / eta of mirror descent."""
    backward: float = 0.0
    """Weight of KL(old || new): the penalty of PPO (eq. 8)."""
    magnet: float = 0.0
    """Weight of KL(new || magnet) (magnetic mirror descent, arXiv 2206.05825)."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    distil: float = 0.0
    """Weight of the cross-entropy to the teacher's moves."""


@dataclass(frozen=True)
class PolicyTerms:
    """Means over decisions, unweighted except `total`."""

    total: Tensor
    surrogate: Tensor
    kl: Tensor
    """KL(new || old) or KL(old || new), whichever the objective holds; 0 without."""
    kl_magnet: Tensor
    entropy: Tensor
    distil: Tensor
    """Cross-entropy to the teacher."""


@dataclass(frozen=True)
class Decisions:
    """What the policy is judged on, R decisions of one operator."""

    mask: Tensor
    """(R, moves), bool."""
    actions: Tensor
    """(R,), int64."""
    old: Tensor
    """(R, moves): log-probabilities when the iteration began."""
    advantages: Tensor
    """(R,)."""
    magnet: Tensor | None = None
    """(R, moves)."""
    teacher: Tensor | None = None
    """(R,), int64, -1 where there is none."""


def divergence(p: Tensor, q: Tensor, mask: Tensor) -> Tensor:
    """KL(p || q) from log-probabilities over the same legal moves: (R, moves) x 3 -> (R,)."""
    return (p.exp() * (p - q).masked_fill(~mask, 0.0)).sum(1)


def uniform(mask: Tensor) -> Tensor:
    """Log-probabilities of the uniform policy over legal moves."""
    return torch.zeros(mask.shape).masked_fill(~mask, -torch.inf).log_softmax(1)


def policy_loss(new: Tensor, seen: Decisions, objective: Objective) -> PolicyTerms:
    """Loss of log-probabilities `new` (R, moves) under `objective`."""
    zero = torch.zeros(())
    ratio = (chosen(new, seen.actions) - chosen(seen.old, seen.actions)).exp()
    surrogate = _surrogate(ratio, seen.advantages, objective.clip)
    kl = magnet = distil = zero
    if objective.forward:
        kl = divergence(new, seen.old, seen.mask).mean()
    elif objective.backward:
        kl = divergence(seen.old, new, seen.mask).mean()
    if objective.magnet and seen.magnet is not None:
        magnet = divergence(new, seen.magnet, seen.mask).mean()
    if objective.distil and seen.teacher is not None:
        distil = imitation(new, seen.teacher)
    spread = entropy(new).mean() if objective.entropy else zero
    total = surrogate + (objective.forward + objective.backward) * kl + objective.magnet * magnet
    total = total - objective.entropy * spread + objective.distil * distil
    return PolicyTerms(total, surrogate, kl, magnet, spread, distil)


def imitation(log_probs: Tensor, teacher: Tensor) -> Tensor:
    """Mean cross-entropy to the teacher's moves (R,), decisions without one (-1) left out; 0 when there is none.

    Raises ValueError when the teacher makes an illegal move: its cross-entropy would be infinite.
    """
    rows = (teacher >= 0).nonzero()[:, 0]
    if len(rows) == 0:
        return torch.zeros(())
    found = chosen(log_probs.index_select(0, rows), teacher[rows])
    if bool(torch.isneginf(found).any()):
        raise ValueError("a teacher's move is illegal by the stored mask: mask and move are of different states")
    return -found.mean()


def value_loss(values: Tensor, targets: Tensor) -> Tensor:
    """Half the mean squared error."""
    return 0.5 * (values - targets).square().mean()


def _surrogate(ratio: Tensor, advantages: Tensor, clip: float | None) -> Tensor:
    gain = ratio * advantages
    if clip is not None:
        gain = torch.minimum(gain, ratio.clamp(1 - clip, 1 + clip) * advantages)
    return -gain.mean()
