"""Joint actions and the choices of several decision makers: the same numbers, read in mixed radix, last one fastest."""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np


def apart(actions: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Joint actions (N,) -> (N, n): what each decision maker chose."""
    return np.stack(np.unravel_index(actions, tuple(sizes)), -1)


def joint(shares: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Independent decision makers (S, n, width) -> the probabilities of joint actions (S, product of sizes)."""
    letters = string.ascii_lowercase[: len(sizes)]
    parts = [shares[:, i, :size] for i, size in enumerate(sizes)]
    product = np.einsum(",".join("z" + x for x in letters) + "->z" + letters, *parts)
    return product.reshape(len(shares), -1)


def product_of(policy: np.ndarray, sizes: Sequence[int]) -> np.ndarray | None:
    """(S, product of sizes) -> (S, n, width) when its decision makers choose independently, else None."""
    table = policy.reshape(-1, *sizes)
    shares = np.zeros((len(policy), len(sizes), max(sizes)))
    for i, size in enumerate(sizes):
        others = tuple(k + 1 for k in range(len(sizes)) if k != i)
        shares[:, i, :size] = table.sum(others)
    return shares if np.allclose(joint(shares, sizes), policy, atol=1e-9) else None
