"""The loss on trees: the clipped surrogate as a mean over decisions, split by where they were made."""

from refork.trainers.surrogate import SplitTerms as TreeTerms
from refork.trainers.surrogate import split_loss as tree_loss

__all__ = ["TreeTerms", "tree_loss"]
