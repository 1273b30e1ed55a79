"""Tables of what estimates on a log rest on: models of Q, who acted, change of dose, violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from refork.cluster.log_doses import maker_names
from refork.cluster.log_words import policies, truth_text, value_text
from refork.replay.ope.calibration import Calibration
from refork.replay.support import DoseBin
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport


MODELS = {
    "values": "1st to 99th percentile",
    "TD rms": "temporal difference r + gamma V(s') - Q(s, a) of patients held out, root mean square",
    "TD mean": "its mean: far from 0, the model does not fit",
}
MAKERS = {
    "NLL": "mean -log probability of the logged action, in nats",
    "NLL of shares": "the same of overall shares, which it has to beat",
    "ECE": "expected calibration error of the likeliest action",
    "furthest off": "probability said and share seen, where they differ most",
}
LEAST_COUNT = 10
"""Decisions and actions without which a share says nothing of a calibration."""


def without_empty(
    title: str, names: Sequence[str], rows: Sequence[Sequence[str]], legend: Mapping[str, str] | None = None
) -> list[Table]:
    """A table of those columns in which something is defined; none when that is the first one alone.

    `legend`: what columns mean, or other words about the table.
    """
    kept = [i for i in range(len(names)) if not i or any(row[i] != "-" for row in rows)]
    if len(kept) < 2:
        return []
    left_out = {name for i, name in enumerate(names) if i not in kept}
    meant = [f"{name}: {words}" for name, words in (legend or {}).items() if name not in left_out]
    table = Table(*(names[i] for i in kept), title=title, caption="; ".join(meant) or None)
    for row in rows:
        table.add_row(*(row[i] for i in kept))
    return [table]


def models_tables(report: LogReport) -> list[Table]:
    names = ("FQE", "converged", "last change", "values", "can be", "TD rms", "TD mean")
    rows = []
    methods = dict.fromkeys(method for row in report.judged for method in row.models)
    for method in methods:
        found = [row.models[method] for row in report.judged if method in row.models]
        curves = [curve for f in found for curve in f.curves if len(curve) > 1]
        changes = [abs(c[-1][1] - c[-2][1]) for c in curves]
        low, high = min(f.lowest for f in found), max(f.highest for f in found)
        cells = (
            method,
            f"{sum(f.converged for f in found)} of {len(found)}",
            f"{max(changes):.1e}" if changes else "-",
            f"{low:.3g} to {high:.3g}",
            f"{found[0].bounds[0]:.3g} to {found[0].bounds[1]:.3g}",
            f"{max(f.td_rms for f in found):.3g}",
            f"{max((f.td_mean for f in found), key=abs):.1e}",
        )
        rows.append(cells)
    return without_empty("Models of Q, over all policies", names, rows, MODELS)


def behaviour_tables(report: LogReport) -> list[Table]:
    """A row a decision maker; the whole reliability is in the picture and the JSON."""
    behaviour = report.part.behaviour
    rows = [
        (name, f"{found.nll:.4f}", f"{found.nll_marginal:.4f}", f"{found.ece:.4f}", _furthest(found))
        for name, found in zip(maker_names(report.part.log.spec.action), behaviour.calibration, strict=False)
    ]
    names = ("decision maker", "NLL", "NLL of shares", "ECE", "furthest off")
    continuous = [("all", f"{behaviour.nll:.4f}", "-", "-", "-")]
    used = {"used for weights": report.part.source} if rows else {}
    return without_empty(f"Who acted: {behaviour.kind}", names, rows or continuous, {**MAKERS, **used})


def _furthest(found: Calibration) -> str:
    counted = [row for row in found.table if row.count >= LEAST_COUNT]
    if not counted:
        return "-"
    worst = max(counted, key=lambda row: abs(row.said - row.seen))
    return f"{worst.said:.3f}, {worst.seen:.3f} (n {worst.count})"


def dose_tables(report: LogReport) -> list[Table]:
    """A row a channel; by logged dose in the picture and the JSON."""
    rows = []
    for channel, bins in trained_doses(report.judged).items():
        counts = [b.count for b in bins]
        lower, same, higher, mean, logged = (
            float(np.average([getattr(b, name) for b in bins], weights=counts))
            for name in ("lower", "same", "higher", "mean", "level")
        )
        shares = (f"{100 * share:.1f} %" for share in (lower, same, higher))
        rows.append((channel, str(sum(counts)), *shares, f"{logged:.2f}", f"{mean:.2f}"))
    names = ("channel", "decisions", "lower", "same", "higher", "mean logged", "mean recommended")
    return without_empty("Change of dose that the trained policy recommends", names, rows) if rows else []


def trained_doses(judged: Sequence[Judged]) -> dict[str, list[DoseBin]]:
    """By channel, means over the trained seeds."""
    rows = [row.practice.doses for row in judged if row.seed is not None and row.practice is not None]
    found: dict[str, list[DoseBin]] = {}
    for channel in rows[0] if rows else ():
        found[channel] = []
        for same in zip(*(doses[channel] for doses in rows), strict=True):
            parts = (float(np.mean([getattr(b, name) for b in same])) for name in ("lower", "same", "higher", "mean"))
            found[channel].append(DoseBin(same[0].level, same[0].count, *parts))
    return found


def violation_tables(report: LogReport) -> list[Table]:
    """Of policies that are compared."""
    rows = [row for row in policies(report) if row.violations]
    if not rows:
        return []
    names, known = list(rows[0].violations), list(rows[0].true_violations)
    title = "Steps an episode beyond a safety limit, 95 % intervals (m: by model)"
    caption = "logged: as observed; others: by the best estimate that the log supports, otherwise by FQE"
    table = Table("policy", *names, *(f"{name}, in truth" for name in known), title=title, caption=caption)
    for row in rows:
        truths = (truth_text(row.true_violations.get(name)) for name in known)
        table.add_row(row.label, *(value_text(row.violations[name]) for name in names), *truths)
    return [table]
