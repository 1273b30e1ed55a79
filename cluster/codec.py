"""A tree of state (weights, generators, counters) as JSON and plain arrays and back, to the bit, without pickle.

A checkpoint may come from elsewhere: reading one must never run code.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_RAW = {torch.bfloat16: torch.uint16}
"""Types numpy lacks, and the type of equal width that carries their bits."""


def encode(tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """`tree` as a JSON value, its tensors and arrays apart by name.

    Holds None, bool, int of any size, float, str, bytes, list, tuple, dict with any of these as keys, numpy arrays
    and scalars, torch tensors. Raises TypeError naming the path for anything else.
    """
    arrays: dict[str, np.ndarray] = {}
    return _encode(tree, "state", arrays), arrays


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `encode`. Raises ValueError for an unknown tag, KeyError for an array that is missing."""
    if isinstance(value, list):
        return [decode(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    (tag, body), *more = value.items()
    if more:
        raise ValueError(f"not an encoded value: {sorted(value)}")
    match tag:
        case "dict":
            return {decode(key, arrays): decode(item, arrays) for key, item in body}
        case "tuple":
            return tuple(decode(item, arrays) for item in body)
        case "bytes":
            return base64.b64decode(body)
        case "array":
            return arrays[body]
        case "scalar":
            return arrays[body][()]
        case "tensor":
            return _tensor(arrays[body["name"]], body["dtype"])
    raise ValueError(f"unknown tag {tag!r}")


def _encode(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if tree is None or type(tree) in (bool, int, float, str):
        return tree
    if isinstance(tree, list):
        return [_encode(item, f"{path}/{i}", arrays) for i, item in enumerate(tree)]
    if isinstance(tree, tuple):
        return {"tuple": [_encode(item, f"{path}/{i}", arrays) for i, item in enumerate(tree)]}
    if isinstance(tree, Mapping):
        return {"dict": [[_encode(k, path, arrays), _encode(v, f"{path}/{k}", arrays)] for k, v in tree.items()]}
    if isinstance(tree, bytes):
        return {"bytes": base64.b64encode(tree).decode()}
    return _leaf(tree, path, arrays)


def _leaf(tree: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    name = f"{len(arrays):05d}"
    if isinstance(tree, torch.Tensor):
        dtype = str(tree.dtype).removeprefix("torch.")
        plain = tree.detach().cpu()
        arrays[name] = plain.view(_RAW.get(plain.dtype, plain.dtype)).numpy()
        return {"tensor": {"name": name, "dtype": dtype}}
    if isinstance(tree, np.ndarray | np.generic) and tree.dtype.kind in "biufcSU":
        arrays[name] = np.asarray(tree)
        return {"array" if isinstance(tree, np.ndarray) else "scalar": name}
    raise TypeError(f"{path}: a checkpoint cannot hold a {type(tree).__module__}.{type(tree).__qualname__}")


def _tensor(array: np.ndarray, dtype: str) -> torch.Tensor:
    kind = getattr(torch, dtype)
    return torch.from_numpy(array.copy()).view(kind)
