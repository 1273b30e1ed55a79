"""The loss of GRPO: the clipped surrogate, averaged over decisions or over rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from refork.trainers.batch import Batch
from refork.trainers.surrogate import Clip, Penalty, Terms, chosen, clipped_surrogate, log_ratio, terms
from torch import Tensor

Aggregate = Literal["decisions", "rollouts"]


@dataclass(frozen=True)
class GrpoTerms(Terms):
    """`policy` is the surrogate."""

    policy: Tensor


def rollout_mean(losses: Tensor, rollouts: Tensor) -> Tensor:
    """Mean over rollouts of the mean over each one's decisions (arXiv 2402.03300, eq. 3); (n,), (n,) -> ()."""
    _, index, counts = rollouts.unique(return_inverse=True, return_counts=True)
    return (losses / counts[index]).sum() / len(counts)


def grpo_loss(
    batch: Batch,
    log_probs: Tensor,
    reference: Tensor | None,
    aggregate: Aggregate,
    clip: Clip,
    penalty: Penalty,
) -> GrpoTerms:
    """`log_probs` and `reference` (n, actions): under the network being trained and the one the run began with."""
    ratios = log_ratio(chosen(log_probs, batch.actions), batch.log_probs)
    losses = clipped_surrogate(ratios, batch.advantages, clip)
    policy = losses.mean() if aggregate == "decisions" else rollout_mean(losses, batch.rollouts)
    return GrpoTerms(**vars(terms(policy, log_probs, batch, reference, clip, penalty)), policy=policy)
