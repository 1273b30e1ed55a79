"""How far worlds disagree, apart from how far one world is from sure of itself: pure functions.

Law of total variance over worlds w and their bootstraps b (ICLR 2024, "Delphic offline reinforcement learning under
nonidentifiable hidden confounding", Theorem 1): Var(Q) = Var_w(E_b Q) + E_w(Var_b Q), delphic + epistemic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Disagreement:
    """(S, ...) each, in squared units of the return."""

    between: Tensor
    """Var_w(E_b Q): over compatible worlds."""
    epistemic: Tensor
    """E_w(Var_b Q)"""
    delphic: Tensor
    """What of `between` the noise of the bootstraps does not explain, >= 0."""


def disagreement(values: Tensor, compatible: Tensor) -> Disagreement:
    """Counterfactual values (S, W, b, ...) and which worlds count (S, W) bool -> population variances.

    Bootstrap b resamples the same episodes in every world, so what differs is noise of the interaction alone: two-way
    analysis of variance without replication. With v = interaction mean square / b the estimate of the variance between
    worlds is between * W / (W - 1) - v; scaled back to the population form and cut off at 0. One world: 0.
    """
    rest = [1] * (values.dim() - 2)
    weights = compatible.to(values.dtype)
    count = weights.sum(1).view(-1, *rest[1:])  # (S, ...)
    share = (weights / weights.sum(1, keepdim=True)).view(*weights.shape, *rest[1:])  # (S, W, ...)
    by_world = values.mean(2)
    centred = by_world - (by_world * share).sum(1, keepdim=True)
    between = (centred.square() * share).sum(1)
    spread = values - by_world.unsqueeze(2)
    epistemic = (spread.square().mean(2) * share).sum(1)
    interaction = spread - (spread * share.unsqueeze(2)).sum(1, keepdim=True)
    bootstraps = values.shape[2]
    noise = (interaction.square().mean(2) * share).sum(1) / (bootstraps - 1)
    delphic = torch.where(count > 1, between - noise, 0.0).clamp_min(0.0)
    return Disagreement(between, epistemic, delphic)


def adjustment_weights(posterior: Tensor, log_given_state: Tensor, log_taken: Tensor, most: float) -> Tensor:
    """E_{q(z | episode)} pi_b(a | s) / pi_b(a | s, z), at most `most`: (K, M, B) each -> (K, B).

    `log_taken`: log pi_b(a | s, z) of the logged action. Transitions of (s, a) are met with p(z | s, a), a policy that
    does not see z meets p(z | s); their ratio is that of the probabilities of the action (back-door adjustment by
    inverse propensity, stabilised by pi_b(a | s)). Without a confounder it is 1.
    """
    log_marginal = torch.logsumexp(log_given_state + log_taken, 1, keepdim=True)
    return (posterior * torch.exp(log_marginal - log_taken)).sum(1).clamp_max(most)
