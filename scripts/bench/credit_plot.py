"""Draws the study of credit: success over steps asked for, and the final success of every estimator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

STRONG = {"crr": "C0", "grpo": "C1"}
"""Drawn with their intervals; all others thin."""


def draw(result: Mapping[str, Any], out: Path) -> None:
    """Into the file `out`."""
    final: dict[str, list[float]] = result["heldout"]
    order = sorted(final, key=lambda name: final[name][1])
    palette = dict(zip([n for n in order if n not in STRONG], plt.get_cmap("tab20").colors[4:], strict=False))  # type: ignore[attr-defined]
    colors = {name: STRONG.get(name, palette.get(name)) for name in order}
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5.5), layout="constrained", width_ratios=(3, 2))
    for name in reversed(order):
        low, middle, high = np.array(result["curves"][name]).T
        steps = np.linspace(result["budget"] / len(middle), result["budget"], len(middle)) / 1000
        left.plot(steps, middle, color=colors[name], lw=2.4 if name in STRONG else 1.1, label=name)
        if name in STRONG:
            left.fill_between(steps, low, high, color=colors[name], alpha=0.2, lw=0)
    left.set(xlabel="steps asked for, every branch counted (thousands)", ylabel="exact success on unseen tasks")
    left.legend(frameon=False, fontsize=8, ncols=2)
    for place, name in enumerate(order):
        low, middle, high = final[name]
        right.plot([low, high], [place, place], color=colors[name], lw=2)
        right.plot(middle, place, "o", color=colors[name])
    right.set_yticks(range(len(order)), order)
    right.set(xlabel=f"final success, IQM and 95 % interval over {result['seeds']} seeds")
    for axis in (left, right):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=110)
    plt.close(figure)
