"""Tables of an evaluation on a log, each readable at 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from refork.cluster.log_part_tables import behaviour_tables, dose_tables, models_tables, violation_tables, without_empty
from refork.replay.ope.estimate import Estimate, ranking
from refork.replay.ope.weights import Support
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport

ESTIMATORS_A_TABLE = 3
LEFT_OUT = ("IS", "DR ", "observed")
"""In the JSON only: what is there to show how it fails, or has a better form beside it; of OffCEM the first model's."""
LEGEND = {
    "ESS": "effective sample size",
    "largest": "share of the largest weight",
    "zero": "share of weights of 0",
    "mean w": "1 is expected",
    "rare": "recommended actions that clinicians take with probability < 1 %",
    "OOD": "under the 5th percentile of training densities",
    "agrees": "with the logged action",
}
MARKS = {"ok": "", "by model": " m", "unsupported": " u"}


def log_tables(report: LogReport) -> list[Table]:
    """Values with intervals, what they rest on, spread of training, models, who acted, doses."""
    tables = [*_values(report), *_support(report), *_spread(report), *models_tables(report), *behaviour_tables(report)]
    return [*tables, *dose_tables(report), *violation_tables(report)]


def shown(row: Judged) -> list[Estimate]:
    """Those that the tables show."""
    found = [e for e in row.estimates if not e.estimator.startswith(LEFT_OUT)]
    clusters = [e for e in found if e.estimator.startswith("OffCEM")]
    return [e for e in found if e not in clusters[1:]]


def _values(report: LogReport) -> list[Table]:
    defined = (e for row in report.judged for e in shown(row) if e.status != "not defined")
    names = list(dict.fromkeys(e.estimator for e in defined))
    tables = [_truths(report)]
    for start in range(0, len(names), ESTIMATORS_A_TABLE):
        some = names[start : start + ESTIMATORS_A_TABLE]
        title = f"Values estimated on {report.split} patients, 95 % intervals (m: by model, u: unsupported)"
        table = Table("policy", *some, title=title if not start else None)
        for row in report.judged:
            own = {e.estimator: e for e in row.estimates}
            if any(name in own for name in some):
                table.add_row(row.label, *(value_text(own.get(name)) for name in some))
        tables.append(table)
    return tables


def value_text(found: Estimate | None) -> str:
    if found is None:
        return ""
    if found.value is None:
        return found.status
    return f"{_number(found.value)} [{_number(found.low)}, {_number(found.high)}]{MARKS[found.status]}"


def _number(value: float | None) -> str:
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}"


def _truths(report: LogReport) -> Table:
    """What is known beside what is estimated first."""
    table = Table("policy", "true value", "observed return", "best supported estimate", title="True values")
    for row in report.judged:
        truth = "unknown"
        if row.truth is not None:
            truth = f"{row.truth.value:.5f}" if row.truth.exact else value_range(row)
        observed = next((value_text(e) for e in row.estimates if e.estimator == "observed return"), "")
        table.add_row(row.label, truth, observed, "" if observed else _best(row))
    return table


def value_range(row: Judged) -> str:
    """A sampled true value with its interval."""
    truth = row.truth
    return "" if truth is None else f"{_number(truth.value)} [{_number(truth.low)}, {_number(truth.high)}]"


def _best(row: Judged) -> str:
    """The narrowest interval among those that the log supports; otherwise that there is none."""
    good = [e for e in shown(row) if e.status == "ok" and e.low is not None and e.high is not None]
    good = [e for e in good if not e.estimator.startswith("FQE")] or good
    if not good:
        return "none: not supported by the log"
    best = min(good, key=lambda e: e.high - e.low)  # type: ignore[operator]
    return f"{value_text(best)} {best.estimator}"


def _support(report: LogReport) -> list[Table]:
    names = ("policy", "n", "ESS", "ESS/n", "largest", "zero", "mean w", "rare", "OOD", "agrees")
    rows = []
    for row in (row for row in report.judged if row.name != "logged"):
        beside = support_of(row)
        weights = ("-",) * 6 if beside is None else _support_cells(beside)
        found = row.practice
        shares = (None,) * 3 if found is None else (found.rare, found.ood, found.agree)
        rows.append((row.label, *weights, *("-" if s is None else f"{100 * s:.1f} %" for s in shares)))
    return without_empty("What the weights of each policy rest on, and its recommendations", names, rows, LEGEND)


def support_of(row: Judged) -> Support | None:
    """Of the weights of whole episodes."""
    return next((e.support for e in row.estimates if e.estimator == "WIS"), None)


def _support_cells(beside: Support) -> tuple[str, ...]:
    mean = f"{beside.mean:.2f}" if beside.mean < 100 else f"{beside.mean:.0e}"
    return (
        str(beside.n),
        f"{beside.ess:.1f}",
        f"{beside.ess_share:.3f}",
        f"{beside.largest:.3f}",
        f"{beside.zero:.3f}",
        mean,
    )


def _spread(report: LogReport) -> list[Table]:
    """How far training seeds are apart: not part of any interval."""
    tables = []
    for row in (row for row in report.judged if row.by_seed):
        table = Table("estimated by", "mean", "lowest", "highest", "sd", title=f"Spread of training: {row.name}")
        for name, values in row.by_seed.items():
            if not name.startswith(LEFT_OUT):
                cells = (np.mean(values), np.min(values), np.max(values), np.std(values, ddof=1))
                table.add_row("true value" if name == "truth" else name, *(_number(float(c)) for c in cells))
        tables.append(table)
    return tables


def rankings(report: LogReport) -> list[str]:
    """Best first, by each estimator that may rank at least two policies."""
    by_policy = {row.label: row.estimates for row in report.judged if row.seed is None}
    names = dict.fromkeys(e.estimator for row in report.judged for e in shown(row))
    ranked = {name: ranking(by_policy, name) for name in names}
    return [f"ranking by {name}: {' > '.join(order)}" for name, order in ranked.items() if len(order) > 1]


def undefined(report: LogReport) -> list[str]:
    """Estimators that no policy has, and why."""
    found: dict[str, set[str]] = {}
    for row in report.judged:
        for e in row.estimates:
            if e.status == "not defined":
                found.setdefault(e.note, set()).add(e.estimator)
    return [f"not defined for this log: {', '.join(sorted(names))}: {why}" for why, names in found.items()]
