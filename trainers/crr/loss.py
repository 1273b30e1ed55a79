"""The loss of CRR: the clipped surrogate, every decision with an advantage weighing the same; and imitation."""

from __future__ import annotations

from dataclasses import dataclass

from refork.trainers.batch import Batch
from refork.trainers.surrogate import Clip, Penalty, SplitTerms, chosen, split_loss
from torch import Tensor


@dataclass(frozen=True)
class CrrTerms(SplitTerms):
    """`distil` is the cross-entropy of the actions to imitate, over all decisions; before its weight."""

    distil: Tensor


def crr_loss(
    batch: Batch, log_probs: Tensor, reference: Tensor | None, clip: Clip, penalty: Penalty, distil: float = 0.0
) -> CrrTerms:
    """`log_probs` and `reference` (n, actions): under the network being trained and the one the run began with.

    `distil`: weight of -log pi of every action to imitate, where a decision of advantage 1 has a surrogate of slope 1.
    """
    found = split_loss(batch, log_probs, reference, clip, penalty)
    imitation = -chosen(log_probs, batch.actions)[batch.target].sum() / len(batch)
    return CrrTerms(**{**vars(found), "total": found.total + distil * imitation}, distil=imitation)
