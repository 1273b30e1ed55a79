"""Clipped policy-gradient surrogate, shared by the algorithms. Pure: tensors in, tensors out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.trainers.batch import Batch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to +- this before they are exponentiated."""


@dataclass(frozen=True)
class Clip:
    """Ratio limits: 1 - low, 1 + high (arXiv 2503.14476), and the dual clip c for negative advantages (1912.09729)."""

    low: float = 0.2
    high: float = 0.28
    dual: float = 3.0


@dataclass(frozen=True)
class Penalty:
    """Weights of the KL divergence from the reference and of the entropy."""

    kl: float = 0.0
    entropy: float = 0.0


@dataclass(frozen=True)
class Terms:
    """Scalar tensors that every surrogate loss has; `total` is minimised, all are logged by field name."""

    total: Tensor
    kl: Tensor
    """KL (k3) from the reference policy; 0 without one."""
    entropy: Tensor
    clip_share: Tensor
    old_kl: Tensor
    """KL (k3) between the policy that acted and the one being trained."""


@dataclass(frozen=True)
class SplitTerms(Terms):
    """`policy_main` and `policy_branch` are the parts of the surrogate from main rollouts and from branches."""

    policy_main: Tensor
    policy_branch: Tensor


def chosen(log_probs: Tensor, actions: Tensor) -> Tensor:
    """(n, actions), (n,) -> (n,)."""
    return log_probs.gather(-1, actions[:, None])[:, 0]


def log_ratio(new: Tensor, old: Tensor) -> Tensor:
    """log pi_new(a) - log pi_old(a), clamped; (n,)."""
    return (new - old).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def clipped_surrogate(log_ratios: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    """Loss per decision, (n,): -min(r A, clip(r) A), at most c |A| where A < 0."""
    ratio = log_ratios.exp()
    clipped = ratio.clamp(1 - clip.low, 1 + clip.high)
    objective = torch.minimum(ratio * advantages, clipped * advantages)
    bounded = torch.maximum(objective, clip.dual * advantages)
    return -torch.where(advantages < 0, bounded, objective)


def clip_share(log_ratios: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    """Share of decisions whose gradient the clip removed; ()."""
    ratio = log_ratios.exp()
    too_high = (advantages > 0) & (ratio > 1 + clip.high)
    too_low = (advantages < 0) & ((ratio < 1 - clip.low) | (ratio > clip.dual))
    return (too_high | too_low).float().mean()


def k3(new: Tensor, reference: Tensor) -> Tensor:
    """KL(pi_new || pi_ref) per decision from samples of pi_new: e^d - d - 1, d = log ref - log new (k3); (n,)."""
    d = log_ratio(reference, new)
    return d.exp() - d - 1


def entropy(log_probs: Tensor) -> Tensor:
    """Entropy of each row of (n, actions) log-probabilities, -inf allowed; (n,), nats."""
    return -(log_probs.exp() * log_probs.masked_fill(log_probs.isinf(), 0.0)).sum(-1)


def terms(
    policy: Tensor,
    log_probs: Tensor,
    batch: Batch,
    reference: Tensor | None,
    clip: Clip,
    penalty: Penalty,
) -> Terms:
    """The terms around the surrogate's value `policy` (): `log_probs`, `reference` are (n, actions)."""
    new = chosen(log_probs, batch.actions)
    kl = torch.zeros(()) if reference is None else k3(new, chosen(reference, batch.actions)).mean()
    spread = entropy(log_probs).mean()
    return Terms(
        total=policy + penalty.kl * kl - penalty.entropy * spread,
        kl=kl,
        entropy=spread,
        clip_share=clip_share(log_ratio(new, batch.log_probs), batch.advantages, clip),
        old_kl=k3(batch.log_probs, new).mean(),
    )


def split_loss(batch: Batch, log_probs: Tensor, reference: Tensor | None, clip: Clip, penalty: Penalty) -> SplitTerms:
    """The surrogate as a mean over decisions, split by where they were made.

    `log_probs` and `reference` (n, actions): under the network being trained and the one the run began with.
    """
    ratios = log_ratio(chosen(log_probs, batch.actions), batch.log_probs)
    losses = clipped_surrogate(ratios, batch.advantages, clip) / len(batch)
    main, branch = losses[~batch.branch].sum(), losses[batch.branch].sum()
    common = terms(main + branch, log_probs, batch, reference, clip, penalty)
    return SplitTerms(**vars(common), policy_main=main, policy_branch=branch)
