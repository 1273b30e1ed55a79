"""Pictures of an evaluation on a log: estimates against the truth, calibration of who acted, change of dose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from refork.cluster.log_doses import maker_names
from refork.cluster.log_part_tables import trained_doses
from refork.cluster.log_tables import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from refork.cluster.log_report import LogReport

STYLES = {"ok": ("o", 1.0), "by model": ("s", 0.9), "unsupported": ("x", 0.35)}


def draw(report: LogReport, folder: Path) -> list[Path]:
    """Write `estimates.png`, `calibration.png` and `doses.png`, as far as there is something to draw."""
    import matplotlib

    matplotlib.use("Agg")
    made = [_draw_estimates(report, folder / f"estimates-{report.split}.png")]
    if report.part.behaviour.calibration:
        made.append(_draw_calibration(report, folder / f"calibration-{report.split}.png"))
    if trained_doses(report.judged):
        made.append(_draw_doses(report, folder / f"doses-{report.split}.png"))
    return made


def _draw_estimates(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    rows = [row for row in report.judged if row.seed is None or len(report.judged) < 8]
    names = list(dict.fromkeys(e.estimator for row in rows for e in shown(row) if e.value is not None))
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.9 * len(rows)), layout="constrained")
    colors = {name: plt.get_cmap("tab20")(i % 20) for i, name in enumerate(names)}
    for place, row in enumerate(rows):
        known = [e for e in row.estimates if e.value is not None and e.estimator in (*names, "observed return")]
        for e, offset in zip(known, _offsets(len(known)), strict=True):
            assert e.value is not None
            marker, alpha = STYLES[e.status]
            color = colors.get(e.estimator, "black")
            low, high = (e.value if end is None else end for end in (e.low, e.high))
            spread = [[max(e.value - low, 0)], [max(high - e.value, 0)]]
            axis.errorbar(e.value, place + offset, xerr=spread, fmt=marker, color=color, alpha=alpha, ms=4, capsize=2)
        if row.truth is not None:
            axis.plot([row.truth.value] * 2, [place - 0.45, place + 0.45], color="black", lw=2)
    labels = [row.label for row in rows]
    axis.set(yticks=range(len(rows)), yticklabels=labels, xlim=_limits(report), ylim=(len(rows) - 0.4, -0.6))
    axis.set_xlabel("value; black bar: true value; circle: supported, square: by model, cross: unsupported")
    handles = [plt.Line2D([], [], color=colors[name], marker="o", ls="", label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return _finish(figure, [axis], path)


def _offsets(count: int) -> np.ndarray:
    """Places of so many estimates within a row."""
    return np.linspace(0.35, -0.35, count) if count > 1 else np.zeros(count)


def _limits(report: LogReport) -> tuple[float, float]:
    """Around what is supported, by models or known; others run out of the picture."""
    values = [row.truth.value for row in report.judged if row.truth is not None]
    for row in report.judged:
        for e in shown(row):
            if e.status in ("ok", "by model") and e.low is not None and e.high is not None:
                values += [e.low, e.high]
    observed = (e for row in report.judged for e in row.estimates if e.estimator == "observed return")
    values += [e.value for e in observed if e.value is not None]
    low, high = min(values), max(values)
    margin = 0.1 * (high - low or 1.0)
    return low - margin, high + margin


def _draw_calibration(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    found, names = report.part.behaviour.calibration, maker_names(report.part.log.spec.action)
    figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
    axis.plot([1e-4, 1], [1e-4, 1], color="grey", lw=1)
    for i, own in enumerate(found):
        said, seen, counts = (np.array([getattr(r, name) for r in own.table]) for name in ("said", "seen", "count"))
        error = 2 * np.sqrt(np.maximum(seen * (1 - seen), 1e-9) / counts)
        label = f"{names[i]}, ECE {own.ece:.3f}"
        axis.errorbar(said, np.maximum(seen, 1e-4), error, marker="o", ms=4, capsize=2, label=label)
    axis.set(
        xlabel="probability said", ylabel="share seen", xscale="log", yscale="log", xlim=(1e-4, 1.2), ylim=(1e-4, 1.2)
    )
    axis.legend(frameon=False)
    return _finish(figure, [axis], path)


def _draw_doses(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    doses = trained_doses(report.judged)
    figure, grid = plt.subplots(
        1, len(doses), figsize=(4 * len(doses), 3.6), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (channel, bins) in zip(grid[0], doses.items(), strict=True):
        base = np.zeros(len(bins))
        for name, color in (("lower", "C0"), ("same", "0.75"), ("higher", "C3")):
            share = 100 * np.array([getattr(b, name) for b in bins])
            axis.bar(range(len(bins)), share, bottom=base, color=color, label=name)
            base += share
        labels = [f"{b.level:.2g}\nn {b.count}" for b in bins]
        axis.set(title=channel, xlabel="logged dose", xticks=range(len(bins)), xticklabels=labels)
    grid[0, 0].set_ylabel("recommended dose, % of decisions")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return _finish(figure, list(grid[0]), path)


def _finish(figure: Figure, axes: list[Axes], path: Path) -> Path:
    from matplotlib import pyplot as plt

    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
