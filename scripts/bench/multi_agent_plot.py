"""Draws the study of several decision makers: scores over the number of agents, navigation, growth of D_CQL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

METHODS = ("cfcql", "macql", "omar", "cql", "bc")
LABELS = dict(zip(METHODS, ("CFCQL", "MACQL", "OMAR", "independent CQL", "behaviour cloning"), strict=True))
COLORS = dict(zip(METHODS, ("C3", "C0", "C2", "C1", "0.45"), strict=True))
QUALITIES = ("random", "medium_replay", "medium", "expert")


def draw(result: Mapping[str, Any], out: Path) -> None:
    """A panel for each kind of log that there are results of, into the file `out`."""
    panels = [partial(_line_panel, result=result, quality=q) for q in QUALITIES if line_sizes(result, q)]
    if any(name.startswith("spread-") for name in result["truth"]):
        panels.append(partial(_navigation_panel, result=result))
    if line_sizes(result, "medium_replay"):
        panels.append(partial(_growth_panel, result=result))
    wide = min(3, len(panels))
    high = -(-len(panels) // wide)
    figure, grid = plt.subplots(high, wide, figsize=(5 * wide, 4 * high + 0.5), layout="constrained", squeeze=False)
    for axis, panel in zip_longest(grid.ravel(), panels):
        axis.set_visible(panel is not None)
        if panel is not None:
            panel(axis)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=10)
    figure.savefig(out, dpi=110)
    plt.close(figure)


def line_sizes(result: Mapping[str, Any], quality: str) -> dict[int, str]:
    """Number of agents -> name of the cell."""
    names = [name for name in result["truth"] if name.startswith("line-n") and name.endswith(f" {quality}")]
    return dict(sorted((int(name.split()[0].removeprefix("line-n")), name) for name in names))


def _line_panel(axis: Axes, result: Mapping[str, Any], quality: str) -> None:
    cells = line_sizes(result, quality)
    sizes = np.array(list(cells))
    for place, method in enumerate(METHODS):
        rows = np.array([result[name][method] for name in cells.values()])
        _whiskers(axis, sizes + 0.06 * (place - 2), rows, method, "-")
    logged = [result["truth"][name]["behaviour"] for name in cells.values()]
    axis.plot(sizes, logged, "k:", lw=1.2, label="the log itself")
    axis.set(title=f"Equal Line, {quality}", xlabel="agents", ylabel="score (0 random, 100 expert)")
    axis.set_xticks(sizes)


def _whiskers(axis: Axes, at: np.ndarray, rows: np.ndarray, method: str, style: str) -> None:
    low, middle, high = rows.T
    spread = np.maximum([middle - low, high - middle], 0)
    axis.errorbar(
        at, middle, spread, color=COLORS[method], ls=style, marker="o", ms=4, lw=1.6, capsize=2, label=LABELS[method]
    )


def _navigation_panel(axis: Axes, result: Mapping[str, Any]) -> None:
    names = [name for name in result["truth"] if name.startswith("spread-")]
    cells = {"\n".join(name.removeprefix("spread-n3-").split()): name for name in sorted(names, key=_order)}
    places = np.arange(len(cells))
    for place, method in enumerate(METHODS):
        rows = np.array([result[name][method] for name in cells.values()])
        _whiskers(axis, places + 0.12 * (place - 2), rows, method, "none")
    for at, name in zip(places, cells.values(), strict=True):
        logged = result["truth"][name]["behaviour"]
        axis.plot([at - 0.35, at + 0.35], [logged, logged], "k:", lw=1.2)
    axis.set(title="Cooperative navigation, 3 agents", ylabel="score (0 random, 100 expert)")
    axis.set_xticks(places, list(cells), fontsize=8)


def _order(name: str) -> tuple[bool, int]:
    """Discrete actions first, then by quality."""
    return "continuous" in name, QUALITIES.index(name.split()[1])


def _growth_panel(axis: Axes, result: Mapping[str, Any]) -> None:
    """Of CFCQL's policies on the log that is most mixed."""
    cells = line_sizes(result, "medium_replay")
    found = np.array([result["d_cql"][name]["cfcql"] for name in cells.values()]).T
    for values, label, style in zip(found, ("one at a time (CFCQL)", "joint (MACQL)"), ("-", "--"), strict=True):
        axis.plot(list(cells), np.maximum(values, 1e-3), style, color="C4", marker="o", ms=4, label=label)
    axis.set(title="D_CQL of CFCQL's policies, medium_replay", xlabel="agents", ylabel="D_CQL, median", yscale="log")
    axis.set_xticks(list(cells))
    axis.legend(frameon=False, fontsize=9)
