"""Draws runs on games and their evaluations.

`python -m refork.scripts.draw_curves learning RUN...`: fraction of the bound on the validation games over the games
played. `drift RUN...`: KL(new || old) an update and its running sum. `scale FILE.json...`: fraction against the number
of sites, from `refork evaluate` or from the last line of the coupling study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from cyclopts import App
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from refork.cluster.tracking import read_metrics
from refork.envs.forkable import BadInput
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.scripts.cli import run_app

Rows = list[dict[str, Any]]
Fractions = dict[str, dict[str, list[float]]]
"""By variant and domain/coupling/n: low, interquartile mean, high."""
FRACTION = "validation/fraction_greedy"
COLORS = [plt.get_cmap("tab20")(i) for i in range(20)]
LOWEST = -0.6
"""Fractions below it are drawn at the edge."""

app = App(help=__doc__, result_action="return_value")


@app.command
def learning(*runs: Path, out: Path = Path("learning.png")) -> int:
    """Fraction of the bound, greedy, over the games played; a line for each run, thin ones for its cells."""
    figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, run in enumerate(_given(runs)):
        rows = [row for row in _rows(run) if row.get(FRACTION) is not None]
        if not rows:
            raise BadInput(f"{run}: nothing was evaluated during training; train with --evaluate.every")
        games = [row["total/trajectories"] for row in rows]
        for name in sorted(k for k in rows[-1] if k.startswith(f"{FRACTION}/")):
            axis.plot(games, [row.get(name, np.nan) for row in rows], color=f"C{number}", lw=0.6, alpha=0.4)
        axis.plot(games, [row[FRACTION] for row in rows], color=f"C{number}", lw=2.2, marker="o", ms=4, label=run.name)
    axis.set(xlabel="games played", ylabel="fraction of the bound, validation games, greedy")
    return _finish(figure, [axis], out)


@app.command
def drift(*runs: Path, out: Path = Path("drift.png")) -> int:
    """KL(new || old) of each operator: an update, smoothed over a twentieth of the run, and its running sum."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for number, run in enumerate(_given(runs)):
        for operator, style in (("demand", "-"), ("supply", "--")):
            rows = [row for row in _rows(run) if row.get(f"drift/{operator}/kl") is not None]
            if not rows:
                raise BadInput(f"{run}: no drift was logged; it is not a run of trainer pmd")
            steps = [row["step"] for row in rows]
            label = f"{run.name}, {operator}"
            one = np.maximum(_smooth([row[f"drift/{operator}/kl"] for row in rows]), 1e-9)
            axes[0].plot(steps, one, style, color=f"C{number}", label=label)
            axes[1].plot(steps, [row[f"drift/{operator}/kl_total"] for row in rows], style, color=f"C{number}")
    axes[0].set(xlabel="update", ylabel="KL(new || old) an update, nats", yscale="log")
    axes[1].set(xlabel="update", ylabel="running sum, nats")
    return _finish(figure, list(axes), out)


@app.command
def scale(*files: Path, out: Path = Path("scale.png")) -> int:
    """Fraction of the bound against the number of sites, a panel for each domain and coupling."""
    fractions: Fractions = {}
    for path in _given(files):
        found = read_fractions(path)
        fractions |= found if len(files) == 1 else {f"{name} ({path.parent.name})": own for name, own in found.items()}
    panels = sorted({cell.rsplit("/", 1)[0] for own in fractions.values() for cell in own})
    columns = min(len(panels), 3 if len(panels) % 3 == 0 else 2)
    height = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        height, columns, figsize=(5 * columns, 4 * height), layout="constrained", squeeze=False, sharey=True
    )
    for axis, panel in zip(grid.T.ravel() if columns == 3 else grid.ravel(), panels, strict=False):
        _panel(axis, panel, fractions)
    for axis in grid[:, 0]:
        axis.set_ylabel("fraction of the bound")
    return _finish(figure, list(grid.ravel()), out)


def read_fractions(path: Path) -> Fractions:
    """Of an evaluation, or of a study's last line. Raises BadInput for another file."""
    try:
        lines = path.read_text(encoding="utf-8").strip()
        data = json.loads(lines if lines.startswith("{\n") else lines.splitlines()[-1])
        if "fraction" in data:
            return data["fraction"]
        return {
            row["policy"] if row["mode"] == "rule" else f"{row['policy']}, {row['mode']}": {
                cell: own["fraction"] for cell, own in row["by_cell"].items()
            }
            for row in data["results"]
        }
    except (OSError, ValueError, IndexError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: is no evaluation of games, nor a study: {error}") from error


def _panel(axis: Axes, panel: str, fractions: Fractions) -> None:
    for number, (variant, own) in enumerate(fractions.items()):
        cells = sorted((int(cell.rsplit("/", 1)[1]), f) for cell, f in own.items() if cell.rsplit("/", 1)[0] == panel)
        if not cells:
            continue
        sizes = np.array([n for n, _ in cells]) * (1 + 0.012 * (number - len(fractions) / 2))  # apart on the log axis
        low, middle, high = np.array([f for _, f in cells]).T
        low, middle, high = (np.maximum(values, LOWEST) for values in (low, middle, high))
        style = ":" if variant in HEURISTICS else "-"
        color = COLORS[number % len(COLORS)]
        spread = np.maximum([middle - low, high - middle], 0)
        axis.errorbar(
            sizes, middle, spread, ls=style, color=color, marker="o", ms=3.5, lw=1.4, capsize=2, label=variant
        )
    known = sorted({int(cell.rsplit("/", 1)[1]) for own in fractions.values() for cell in own})
    axis.set(title=panel.replace("/", ", "), xlabel="sites", xscale="log", ylim=(LOWEST - 0.02, 1.02))
    axis.set_xticks(known, [str(n) for n in known])
    axis.minorticks_off()


def _given(paths: Sequence[Path]) -> Sequence[Path]:
    if not paths:
        raise BadInput("name at least one")
    return paths


def _rows(run: Path) -> Rows:
    if not (run / "metrics.jsonl").exists():
        raise BadInput(f"{run}: not the folder of a run: there is no metrics.jsonl")
    return read_metrics(run / "metrics.jsonl")


def _smooth(values: Sequence[float]) -> np.ndarray:
    """Moving average over a twentieth of the row."""
    width = max(1, len(values) // 20)
    padded = np.pad(np.asarray(values, np.float64), (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.ones(width) / width, "valid")


def _finish(figure: Figure, axes: Sequence[Axes], out: Path) -> int:
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    named: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        named = {**dict(zip(labels, handles, strict=True)), **named}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(out, dpi=120)
    plt.close(figure)
    print(f"written to {out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(run_app(app))
