"""The loss of CRR: the clipped surrogate, every decision with an advantage weighing the same; and imitation."""

from __future__ import annotations

from dataclasses import dataclass

from refork.trainers.batch import Batch
from refork.trainers.surrogate import Clip, Penalty, Terms, chosen, clipped_surrogate, log_ratio, terms
from torch import Tensor


@dataclass(frozen=True)
class CrrTerms(Terms):
    """`policy_main` and `policy_branch` are the parts of the surrogate from main rollouts and from branches."""

    policy_main: Tensor
    policy_branch: Tensor
    distil: Tensor
    """Cross-entropy of the actions to imitate, over all decisions; before its weight."""


def crr_loss(
    batch: Batch, log_probs: Tensor, reference: Tensor | None, clip: Clip, penalty: Penalty, distil: float = 0.0
) -> CrrTerms:
    """`log_probs` and `reference` (n, actions): under the network being trained and the one the run began with.

    `distil`: weight of -log pi of every action to imitate, where a decision of advantage 1 has a surrogate of slope 1.
    """
    new = chosen(log_probs, batch.actions)
    ratios = log_ratio(new, batch.log_probs)
    losses = clipped_surrogate(ratios, batch.advantages, clip) / len(batch)
    main, branch = losses[~batch.branch].sum(), losses[batch.branch].sum()
    imitation = -new[batch.target].sum() / len(batch)
    common = terms(main + branch + distil * imitation, log_probs, batch, reference, clip, penalty)
    return CrrTerms(**vars(common), policy_main=main, policy_branch=branch, distil=imitation)
