"""Guarded policy learning under costs (OGSRL, NeurIPS 2025), Lagrangian form: pure functions.

Values have a last axis of 1 + J: the return, divided by its standard deviation in the log, and J costs. A cost is at
least 0, and its value is a discounted share of the coming steps, (1 - g) sum_t g^t c_t, so budgets are shares as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class CriticTerms:
    """(S,) each."""

    total: Tensor
    td_return: Tensor
    """Huber loss of the temporal difference of the return."""
    td_cost: Tensor
    """The same of the costs, summed over them."""


@dataclass(frozen=True)
class PolicyTerms:
    """(S,) each."""

    total: Tensor
    value: Tensor
    """Mean value of the return under the policy, in its standard deviations: of the critic, no evaluation."""
    penalty: Tensor
    """Mean of the costs' values times their multipliers."""
    divergence: Tensor
    """From the cloned clinicians: KL, or the squared distance of actions in [-1, 1]^d."""


@dataclass(frozen=True)
class ModelTerms:
    """(K,) each: members of the ensemble."""

    total: Tensor
    change: Tensor
    """Negative log-likelihood of the next observation's change, a mean over features."""
    reward: Tensor
    """Squared error of the reward, in its standard deviations."""
    ended: Tensor
    """Cross-entropy of termination."""


def pessimistic(twins: Tensor) -> Tensor:
    """(S, 2, ..., 1 + J) -> (S, ..., 1 + J): the lower of the two returns, the higher of the two costs."""
    return torch.cat([twins[..., :1].amin(1), twins[..., 1:].amax(1)], -1)


def targets(
    rewards: Tensor, discounts: Tensor, costs: Tensor, next_values: Tensor, cost_discounts: Tensor, g: float
) -> Tensor:
    """(S, B, 1 + J): r + discount V(s'), and (1 - g) c + cost discount V(s').

    Rewards and discounts (S, B), costs (S, B, J), next_values (S, B, 1 + J), cost_discounts (S, B): g, 0 at an end.
    """
    returns = rewards + discounts * next_values[..., 0]
    cost = (1 - g) * costs + cost_discounts[..., None] * next_values[..., 1:]
    return torch.cat([returns[..., None], cost], -1).detach()


def critic_loss(twins: Tensor, goals: Tensor, weights: Tensor) -> CriticTerms:
    """Values of the taken actions (S, critics, B, 1 + J), targets (S, B, 1 + J), weights (S, B); critics add."""
    errors = functional.huber_loss(twins, goals[:, None].expand_as(twins), reduction="none").sum(1)
    means = (errors * weights[..., None]).sum(1) / weights.sum(1).clamp_min(1.0)[:, None]  # (S, 1 + J)
    td_return, td_cost = means[:, 0], means[:, 1:].sum(1)
    return CriticTerms(td_return + td_cost, td_return, td_cost)


def guarded(values: Tensor, duals: Tensor) -> tuple[Tensor, Tensor]:
    """Values (S, ..., 1 + J) and multipliers (S, J) -> return and penalty, (S, ...) each, over 1 + the multipliers.

    A cost lowers what is maximised, the more the larger its multiplier; the division keeps steps of one size.
    """
    scale = 1 + duals.sum(1)
    shape = (len(scale), *(1,) * (values.dim() - 2))
    penalty = torch.einsum("s...j,sj->s...", values[..., 1:], duals)
    return values[..., 0] / scale.view(shape), penalty / scale.view(shape)


def softmax_policy_loss(
    log_policy: Tensor, clinician: Tensor, values: Tensor, duals: Tensor, weights: Tensor, divergence_weight: float
) -> PolicyTerms:
    """Log-probabilities (S, B, A) of policy and cloned clinicians, values (S, B, A, 1 + J), weights (S, B).

    -E_pi[return - penalty] + weight KL(pi || clinicians); actions of probability 0 count nothing.
    """
    policy = log_policy.exp()
    value, penalty = guarded(values, duals)
    apart = (policy * (log_policy - clinician).masked_fill(policy == 0, 0.0)).sum(-1)
    return _policy_terms((policy * value).sum(-1), (policy * penalty).sum(-1), apart, weights, divergence_weight)


def action_policy_loss(
    actions: Tensor, clinician: Tensor, values: Tensor, duals: Tensor, weights: Tensor, divergence_weight: float
) -> PolicyTerms:
    """Actions of policy and cloned clinicians (S, B, d) in [-1, 1], values (S, B, 1 + J) of the former."""
    apart = (actions - clinician).square().sum(-1)
    value, penalty = guarded(values, duals)
    return _policy_terms(value, penalty, apart, weights, divergence_weight)


def _policy_terms(value: Tensor, penalty: Tensor, apart: Tensor, weights: Tensor, by: float) -> PolicyTerms:
    share = weights / weights.sum(1, keepdim=True).clamp_min(1.0)
    value, penalty, apart = ((x * share).sum(1) for x in (value, penalty, apart))
    return PolicyTerms(penalty - value + by * apart, value, penalty, apart)


def dual_step(duals: Tensor, costs: Tensor, budgets: Tensor, rate: float, most: float) -> Tensor:
    """Multipliers (S, J) a step up the dual: they grow where costs (S, J) exceed budgets (J,), else fall."""
    return (duals + rate * (costs - budgets)).clamp(0.0, most)


def damped(duals: Tensor, costs: Tensor, budgets: Tensor, gain: float, most: float) -> Tensor:
    """Multipliers (S, J) with the proportional part of the control: gain times the present excess, within bounds."""
    return (duals + gain * (costs - budgets)).clamp(0.0, most)


def model_loss(out: Tensor, change: Tensor, rewards: Tensor, ended: Tensor) -> ModelTerms:
    """Outputs (K, B, 2 F + 2) of the ensemble against the change (K, B, F), rewards and ends (K, B) that were."""
    mean, log_std, reward, end = model_outputs(out)
    likelihood = -0.5 * ((change - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    surprise = -likelihood.mean((1, 2))
    error = (reward - rewards).square().mean(1)
    crossed = functional.binary_cross_entropy_with_logits(end, ended, reduction="none").mean(1)
    return ModelTerms(surprise + error + crossed, surprise, error, crossed)


def model_outputs(out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(K, B, 2 F + 2) -> mean and log-deviation (K, B, F), reward and logit of the end (K, B)."""
    features = (out.shape[-1] - 2) // 2
    mean, log_std, rest = out.split([features, features, 2], -1)
    return mean, log_std.clamp(-5.0, 2.0), rest[..., 0], rest[..., 1]
