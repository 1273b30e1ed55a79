"""Pictures of an evaluation on a log: estimates against the truth, calibration of who acted, change of dose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from refork.cluster.log_doses import maker_names
from refork.cluster.log_part_tables import LEAST_COUNT, trained_doses
from refork.cluster.log_words import policies, shown
from refork.envs.forkable import BadInput
from refork.replay.ope.estimate import Estimate
from refork.replay.support import DoseBin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from refork.cluster.log_report import Judged, LogReport

STYLES = {"ok": ("o", 1.0), "by model": ("s", 0.35), "unsupported": ("x", 0.35)}
"""Marker and opacity: what the log does not support is faint."""
MARKS = "circle: supported by the log; faint square: by model; faint cross: unsupported; arrow: beyond the picture"
MODELS = ("table", "linear", "tree", "network")
SHADES = {
    "WIS": 8,
    "per-decision WIS": 9,
    **{f"FQE {model}": 2 * i for i, model in enumerate(MODELS)},
    **{f"WDR {model}": 2 * i + 1 for i, model in enumerate(MODELS)},
    **{f"OffCEM {model}": 10 for model in MODELS},
}
"""Of each estimator, in the palette tab20: the same in all pictures."""
DOSES_A_ROW = 3


def draw(report: LogReport, folder: Path) -> list[Path]:
    """Write `estimates.png`, `calibration.png` and `doses.png`, as far as there is something to draw.

    Raises BadInput where matplotlib is missing.
    """
    try:
        import matplotlib
    except ImportError:
        raise BadInput("pictures of an evaluation need the package matplotlib: pip install matplotlib") from None

    matplotlib.use("Agg")
    made = [_draw_estimates(report, folder / f"estimates-{report.split}.png")]
    if report.part.behaviour.calibration:
        made.append(_draw_calibration(report, folder / f"calibration-{report.split}.png"))
    if trained_doses(report.judged):
        made.append(_draw_doses(report, folder / f"doses-{report.split}.png"))
    return made


def _draw_estimates(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    rows = policies(report)
    names = list(dict.fromkeys(e.estimator for row in rows for e in shown(row) if e.value is not None))
    figure, axis = plt.subplots(figsize=(9, 1.6 + 0.9 * len(rows)), layout="constrained")
    limits = _limits(report)
    for place, row in enumerate(rows):
        _draw_row(axis, row, place, limits)
    labels = [row.label for row in rows]
    axis.set(yticks=range(len(rows)), yticklabels=labels, xlim=limits, ylim=(len(rows) - 0.4, -0.6))
    axis.set_title(f"Values estimated on {report.split} patients, 95 % intervals")
    meaning = fill(f"expected return: {report.part.log.spec.reward}", 90)
    marks = f"{MARKS}\nblack bar: true value" if any(row.truth for row in rows) else MARKS
    axis.set_xlabel(f"{meaning}\n{marks}", fontsize=9)
    handles = [plt.Line2D([], [], color=_color(name), marker="o", ls="", label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return _finish(figure, [axis], path)


def _draw_row(axis: Axes, row: Judged, place: int, limits: tuple[float, float]) -> None:
    """Of one policy: its estimates one under the other, in the order of the legend."""
    known = [e for e in (*shown(row), *_observed(row)) if e.value is not None]
    for e, offset in zip(known, _offsets(len(known)), strict=True):
        assert e.value is not None
        marker, alpha = STYLES[e.status]
        color, beyond = _color(e.estimator), not limits[0] < e.value < limits[1]
        if beyond:
            right, inset = e.value >= limits[1], 0.01 * (limits[1] - limits[0])
            edge = limits[1] - inset if right else limits[0] + inset
            axis.plot([edge], [place + offset], marker=">" if right else "<", color=color, alpha=alpha, ms=5)
        low, high = (e.value if end is None else end for end in (e.low, e.high))
        spread = [[max(e.value - low, 0)], [max(high - e.value, 0)]]
        shape = "none" if beyond else marker
        axis.errorbar(e.value, place + offset, xerr=spread, fmt=shape, color=color, alpha=alpha, ms=4, capsize=2)
    if row.truth is not None:
        axis.plot([row.truth.value] * 2, [place - 0.45, place + 0.45], color="black", lw=2)


def _observed(row: Judged) -> list[Estimate]:
    return [e for e in row.estimates if e.estimator == "observed return"]


def _color(estimator: str) -> Any:
    from matplotlib import colormaps

    return colormaps["tab20"](SHADES[estimator]) if estimator in SHADES else "black"


def _offsets(count: int) -> np.ndarray:
    """Places of so many estimates within a row, from the top."""
    return np.linspace(-0.35, 0.35, count) if count > 1 else np.zeros(count)


def _limits(report: LogReport) -> tuple[float, float]:
    """Around what is supported, by models or known; others run out of the picture."""
    rows = policies(report)
    values = [row.truth.value for row in rows if row.truth is not None]
    for e in (e for row in rows for e in shown(row)):
        if e.status in ("ok", "by model") and e.low is not None and e.high is not None:
            values += [e.low, e.high]
    values += [e.value for row in rows for e in _observed(row) if e.value is not None]
    low, high = min(values), max(values)
    margin = 0.1 * (high - low or 1.0)
    return low - margin, high + margin


def _draw_calibration(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    found, names = report.part.behaviour.calibration, maker_names(report.part.log.spec.action)
    figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
    axis.set_title(f"Who acted, on {report.split} patients")
    axis.plot([1e-4, 1], [1e-4, 1], color="grey", lw=1)
    for i, own in enumerate(found):
        rows = [row for row in own.table if row.count >= LEAST_COUNT]
        said, seen, counts = (np.array([getattr(r, name) for r in rows]) for name in ("said", "seen", "count"))
        error = 2 * np.sqrt(np.maximum(seen * (1 - seen), 1e-9) / counts)
        label = f"{names[i]}, ECE {own.ece:.3f}"
        never = seen == 0  # no point of a logarithmic axis
        line = axis.errorbar(said[~never], seen[~never], error[~never], marker="o", ms=4, capsize=2, label=label)
        axis.plot(said[never], np.full(never.sum(), 1.3e-4), "v", color=line[0].get_color(), fillstyle="none")
    meant = f"probability said (of at least {LEAST_COUNT} actions)\nopen triangle: never seen"
    axis.set(xlabel=meant, ylabel="share seen")
    axis.set(xscale="log", yscale="log", xlim=(1e-4, 1.2), ylim=(1e-4, 1.2))
    axis.legend(frameon=False)
    return _finish(figure, [axis], path)


def _draw_doses(report: LogReport, path: Path) -> Path:
    from matplotlib import pyplot as plt

    doses = trained_doses(report.judged)
    wide, high = min(len(doses), DOSES_A_ROW), -(-len(doses) // DOSES_A_ROW)
    figure, grid = plt.subplots(
        high, wide, figsize=(max(4.5 * wide, 5), 3.6 * high), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (channel, bins) in zip(grid.flat, doses.items(), strict=False):
        _draw_channel(axis, channel, bins)
    for axis in grid.flat[len(doses) :]:
        axis.set_visible(False)
    for axis in grid[:, 0]:
        axis.set_ylabel("recommended dose, % of decisions")
    figure.suptitle(f"Doses that the trained policy recommends, on {report.split} patients")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return _finish(figure, list(grid.flat), path)


def _draw_channel(axis: Axes, channel: str, bins: Sequence[DoseBin]) -> None:
    """Shares of lower, same and higher doses, by logged dose."""
    base = np.zeros(len(bins))
    for name, color in (("lower", "C0"), ("same", "0.75"), ("higher", "C3")):
        share = 100 * np.array([getattr(b, name) for b in bins])
        axis.bar(range(len(bins)), share, bottom=base, color=color, label=name)
        base += share
    labels = [f"{b.level:.2g}\n{b.count}" for b in bins]
    axis.set(title=channel, xlabel="logged dose, and decisions in which it was given", xticks=range(len(bins)))
    axis.set_xticklabels(labels, fontsize=10 if len(bins) <= 6 else 6)


def _finish(figure: Figure, axes: list[Axes], path: Path) -> Path:
    from matplotlib import pyplot as plt

    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
