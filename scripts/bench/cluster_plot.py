"""The picture of bench/cluster_model.py: throughput and idle shares of a growing cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refork.scripts.bench.cluster_growth import DESIGNS


def draw(result: Mapping[str, Any], path: Path) -> None:
    """Throughput and idle shares by nodes, a colour for each design."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    for number, design in enumerate(DESIGNS):
        rows, colour = [row for row in result["rows"] if row["design"] == design.name], f"C{number}"
        nodes = [row["nodes"] for row in rows]
        left.plot(nodes, [row["episodes_per_s"] for row in rows], "o-", color=colour, label=design.name)
        right.plot(nodes, [row["idle_actors"] for row in rows], "o-", color=colour)
        right.plot(nodes, [row["idle_learners"] for row in rows], "s--", color=colour, markersize=4)
    ideal = [(row["nodes"], row["episodes_per_s"] / row["efficiency"]) for row in result["rows"]]
    left.plot(*zip(*sorted(set(ideal)), strict=True), ":", color="grey", label="actors that never wait")
    left.set(xscale="log", yscale="log", xlabel="nodes", ylabel="episodes per second", title="Throughput")
    right.set(xscale="log", xlabel="nodes", ylabel="share of time", ylim=(0, 1.02))
    right.set_title("Idle: actors (solid), learners (dashed)")
    left.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
