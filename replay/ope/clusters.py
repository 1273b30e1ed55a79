"""Weights of clusters of actions, for action sets so large that weights of single actions leave nothing.

After OffCEM (Saito, Ren and Joachims 2023, arXiv 2305.08062): the weight of a step is that of the cluster of the logged
action, and a model of Q stands for what differs within a cluster. Clusters here are the magnitude of the set of
treatments: the sum of the dose levels, whichever channel they are of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.replay.ope.weights import log_ratios


def magnitudes(levels: Sequence[int]) -> np.ndarray:
    """Number of levels of each channel -> (A,), int64: sum of levels of joint action a, the last channel fastest."""
    return np.indices(tuple(levels)).reshape(len(levels), -1).sum(0)


def cluster_ratios(policy: np.ndarray, behaviour: np.ndarray, actions: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """(N, A) probabilities of joint actions under both, logged ones (N,), clusters (A,) -> (N,) log ratios."""
    member = np.eye(int(clusters.max()) + 1)[clusters]  # (A, C)
    own = clusters[actions][:, None]
    of_policy, of_behaviour = (np.take_along_axis(p @ member, own, 1)[:, 0] for p in (policy, behaviour))
    return log_ratios(of_policy, of_behaviour)
