"""The loss on trees: CRR's, the clipped surrogate as a mean over decisions, split by where they were made."""

from refork.trainers.crr.loss import CrrTerms as TreeTerms
from refork.trainers.crr.loss import crr_loss as tree_loss

__all__ = ["TreeTerms", "tree_loss"]
