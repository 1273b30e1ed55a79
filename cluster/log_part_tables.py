"""Tables of what estimates on a log rest on: models of Q, who acted, change of dose, violations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from refork.cluster.log_doses import maker_names
from refork.replay.support import DoseBin
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport


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
    return without_empty("Models of Q, over all policies; temporal differences of patients held out", names, rows)


def behaviour_tables(report: LogReport) -> list[Table]:
    behaviour = report.part.behaviour
    rows = [
        (name, f"{found.nll:.4f}", f"{found.nll_marginal:.4f}", f"{found.ece:.4f}")
        for name, found in zip(maker_names(report.part.log.spec.action), behaviour.calibration, strict=False)
    ]
    continuous = [("all", f"{behaviour.nll:.4f}", "-", "-")]
    head = without_empty(
        f"Who acted: {behaviour.kind}",
        ("decision maker", "NLL", "NLL of shares", "ECE"),
        rows or continuous,
        {"used for weights": report.part.source} if rows else None,
    )
    return [*head, *(_reliability(report, i) for i in range(len(behaviour.calibration)))]


def _reliability(report: LogReport, maker: int) -> Table:
    found = report.part.behaviour.calibration[maker]
    title = f"Reliability: {maker_names(report.part.log.spec.action)[maker]}"
    table = Table("probability said", "actions", "said", "seen", title=title)
    for row in found.table:
        table.add_row(f"{row.low:g} to {row.high:g}", str(row.count), f"{row.said:.4f}", f"{row.seen:.4f}")
    return table


def dose_tables(report: LogReport) -> list[Table]:
    tables = []
    for channel, bins in trained_doses(report.judged).items():
        title = f"Change of dose, {channel}: share of the trained policy's recommendations"
        table = Table("logged dose", "decisions", "lower", "same", "higher", "mean dose", title=title)
        for found in bins:
            shares = (f"{100 * share:.1f} %" for share in (found.lower, found.same, found.higher))
            table.add_row(f"{found.level:.3g}", str(found.count), *shares, f"{found.mean:.2f}")
        tables.append(table)
    return tables


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
    rows = [row for row in report.judged if row.violations]
    if not rows:
        return []
    limits = list(rows[0].violations)
    table = Table("policy", *limits, title="Steps an episode that lead to a violation, estimated by FQE")
    for row in rows:
        table.add_row(row.label, *(_rate(row.violations[limit]) for limit in limits))
    return [table]


def _rate(value: float | None) -> str:
    return "failed" if value is None else f"{value:.2f}"
