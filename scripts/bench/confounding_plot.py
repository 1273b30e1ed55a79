"""Draws the study of hidden confounding: true values over its strength, and what the worlds say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

COLORS = {"bc": "0.45", "cql": "C1", "delphic": "C0", "delphic, adjusted": "C3"}
LABELS = {"bc": "behaviour cloning", "cql": "CQL", "delphic": "Delphic", "delphic, adjusted": "Delphic, adjusted"}


def draw(result: Mapping[str, Any], out: Path) -> None:
    """Two panels of values and one of the worlds into the file `out`."""
    figure, (clinic, sepsis, worlds) = plt.subplots(1, 3, figsize=(15, 5.8), layout="constrained")
    _values(clinic, result, "clinic", "visits that go well (of 8)")
    _values(sepsis, result, "sepsis", "expected return")
    _worlds(worlds, result)
    _fixed(sepsis, result, "sepsis")
    clinics, patients = (list(_strengths(result, name)[0]) for name in ("clinic", "sepsis"))
    shown = ((clinic, clinics), (sepsis, patients), (worlds, [1, 2, 5, 10, 25]))
    for axis, strengths in shown:
        axis.set(xscale="log", xlabel="confounding strength Gamma (odds ratio)")
        axis.set_xticks(strengths, [f"{strength:g}" for strength in strengths])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _strengths(result: Mapping[str, Any], name: str) -> tuple[np.ndarray, Sequence[str]]:
    """Ascending, and the titles of their cells."""
    titles = sorted((t for t in result["truth"] if t.startswith(name)), key=lambda t: float(t.split()[1]))
    return np.array([float(t.split()[1]) for t in titles]), titles


def _values(axis: Axes, result: Mapping[str, Any], name: str, label: str) -> None:
    strengths, titles = _strengths(result, name)
    for place, (method, color) in enumerate(COLORS.items()):
        low, middle, high = np.array([result[t][method] for t in titles]).T
        spread = np.maximum([middle - low, high - middle], 0)
        at = strengths * 1.02 ** (place - 1.5)
        axis.errorbar(at, middle, spread, color=color, marker="o", ms=4, capsize=2, label=LABELS[method])
    for known, style in zip(result["truth"][titles[0]], (":", "--"), strict=True):
        axis.plot(strengths, [result["truth"][t][known] for t in titles], f"k{style}", lw=1, label=known)
    axis.set(title=f"{name}: true value", ylabel=label)


def _fixed(axis: Axes, result: Mapping[str, Any], name: str) -> None:
    """The first setting that was tried of every method but cloning: the weakest conservative term."""
    strengths, titles = _strengths(result, name)
    for method in COLORS:
        if method != "bc":
            middle = [result["all_settings"][t][method][0][1] for t in titles]
            weak = f"{LABELS[method]}, alpha .01"
            axis.plot(strengths, middle, color=COLORS[method], ls="-.", lw=1, marker="x", ms=5, label=weak)


def _worlds(axis: Axes, result: Mapping[str, Any]) -> None:
    for name, style in (("clinic", "-"), ("sepsis", "--")):
        strengths, titles = _strengths(result, name)
        found = [result["worlds"][t] for t in titles]
        changed = [row["delphic"]["changed_actions"] for row in found]
        weighed = [row["delphic, adjusted"]["worlds/adjustment"] for row in found]
        axis.plot(strengths, changed, f"C0{style}", marker="o", ms=4, label=f"{name}: greedy actions changed")
        axis.plot(strengths, weighed, f"C3{style}", marker="s", ms=4, label=f"{name}: mean |weight - 1|")
    axis.set(title="what the penalty and the adjustment do", ylabel="share")
