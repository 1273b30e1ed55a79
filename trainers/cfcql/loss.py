"""Counterfactual conservative Q-learning (CFCQL, NeurIPS 2023, arXiv 2309.12696): pure functions."""

from __future__ import annotations

import torch
from refork.trainers.cql.loss import masked
from torch import Tensor


def counterfactual_gap(swept: Tensor, logged: Tensor, weights: Tensor, allowed: Tensor | None = None) -> Tensor:
    """mean[ sum_i weights_i logsumexp_{a_i} Q_tot(s, a_i, a_D^{-i}) - Q_tot(s, a_D) ] (S,).

    `swept`: (S, B, n, A), only decision maker i's action is swept; `logged`: (S, B); `weights`: (S, B, n), their sum 1;
    `allowed`: (S, B, n, A) bool or None. Of candidates with densities, `swept` is Q - log(density) - log(candidates).
    """
    soft = torch.logsumexp(masked(swept, allowed), -1)  # (S, B, n)
    return ((weights * soft).sum(-1) - logged).mean(-1)


def divergence(swept: Tensor, behaviour: Tensor, allowed: Tensor | None = None) -> Tensor:
    """KL(mu_i || beta_i) with mu_i = softmax_{a_i} Q_tot(s, a_i, a_D^{-i}): (S, B, n), without gradient.

    `swept` and logits of `behaviour`: (S, B, n, A).
    """
    mu = torch.log_softmax(masked(swept.detach(), allowed), -1)
    beta = torch.log_softmax(masked(behaviour.detach(), allowed), -1)
    return torch.where(mu > -torch.inf, mu.exp() * (mu - beta), 0.0).sum(-1)


def candidate_divergence(values: Tensor, summands: Tensor, behaviour: Tensor) -> Tensor:
    """KL(mu_i || beta_i) of continuous actions, mu_i(a) = exp Q_tot(s, a, a_D^{-i}) / Z, estimated on candidates.

    `values` Q and `summands` (trainers/candidates.py: `weigh`), log-densities of `behaviour`: (S, B, n, C) each
    -> (S, B, n), without gradient.
    """
    mu = values.detach() - torch.logsumexp(summands.detach(), -1, keepdim=True)  # log-density
    return (torch.softmax(summands.detach(), -1) * (mu - behaviour.detach())).sum(-1)


def agent_weights(divergences: Tensor, temperature: float) -> Tensor:
    """lambda = softmax_i(temperature * KL_i), (S, B, n) -> (S, B, n): 0 is uniform, large picks the greatest."""
    return torch.softmax(temperature * divergences.detach(), -1)


def counterfactual_divergence(policy: Tensor, behaviour: Tensor) -> Tensor:
    """mean_i sum_a pi_i^2 / beta_i - 1 (CFCQL, D_CQL with uniform lambda): how far each one alone departs.

    Probabilities (..., n, A), 0 beyond a decision maker's own number -> (...). Infinite out of support.
    """
    return _ratios(policy, behaviour).mean(-1) - 1


def joint_divergence(policy: Tensor, behaviour: Tensor) -> Tensor:
    """prod_i sum_a pi_i^2 / beta_i - 1: the joint policy's (MACQL), exponential in n."""
    return _ratios(policy, behaviour).prod(-1) - 1


def _ratios(policy: Tensor, behaviour: Tensor) -> Tensor:
    return torch.where(policy > 0, policy.square() / behaviour, 0.0).sum(-1)
