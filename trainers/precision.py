"""How exactly matrix products are computed on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch


@contextmanager
def matrix_products(precision: Literal["float32", "bfloat16"]) -> Iterator[None]:
    """Within it factors may be rounded to bfloat16 (8 bits of mantissa); sums stay float32.

    Processors with instructions for that (AVX-512 BF16, AMX) multiply several times as fast; others go on as before.
    """
    if precision == "float32":
        yield
        return
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before
