"""Tables of an evaluation on a log, each readable at 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from refork.cluster.log_part_tables import behaviour_tables, dose_tables, models_tables, violation_tables, without_empty
from refork.cluster.log_words import number, policies, shown, truth_text, value_text
from refork.replay.ope.estimate import POOR, best_supported
from refork.replay.ope.weights import Support
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport

ESTIMATORS_A_TABLE = 3
LEGEND = {
    "ESS": "effective sample size",
    "largest": "share of the largest weight",
    "zero": "share of weights of 0",
    "mean w": "1 is expected",
    "rare": "recommended actions that clinicians take with probability < 1 %",
    "OOD": "under the 5th percentile of training densities",
    "agrees": "with the logged action",
}
ESTIMATORS = {
    "WIS": "weighted importance sampling, over whole episodes or per decision",
    "FQE": "fitted Q evaluation, by a model of Q",
    "WDR": "weighted doubly robust, by weights and a model of Q",
    "OffCEM": "weights of groups of like doses, and a model of Q",
}
FAILED = {
    "not converged": "the model of Q did not",
    "impossible": "the model of Q left what values can be",
    "none": "no weight is left",
}


def log_tables(report: LogReport) -> list[Table]:
    """Values with intervals, what they rest on, spread of training, models, who acted, doses."""
    tables = [*_values(report), *_support(report), *_spread(report), *models_tables(report), *behaviour_tables(report)]
    return [*tables, *dose_tables(report), *violation_tables(report)]


def _values(report: LogReport) -> list[Table]:
    rows = policies(report)
    names = list(dict.fromkeys(e.estimator for row in rows for e in shown(row) if e.status != "not defined"))
    tables = [_truths(report)]
    for start in range(0, len(names), ESTIMATORS_A_TABLE):
        some = names[start : start + ESTIMATORS_A_TABLE]
        title = f"Values estimated on {report.split} patients, 95 % intervals (m: by model, u: unsupported)"
        table = Table("policy", *some, title=title if not start else None)
        for row in rows:
            own = {e.estimator: e for e in row.estimates}
            if any(name in own for name in some):
                table.add_row(row.label, *(value_text(own.get(name)) for name in some))
        tables.append(table)
    if len(tables) > 1:
        tables[-1].caption = _meant(tables[1:])
    return tables


def _meant(tables: list[Table]) -> str:
    """What the terms in these tables mean."""
    text = " ".join([str(c.header) for t in tables for c in t.columns])
    cells = " ".join(str(cell) for t in tables for c in t.columns for cell in c.cells)
    found = [f"{name}: {words}" for name, words in ESTIMATORS.items() if name in text]
    return "; ".join([*found, *(f"{name}: {words}" for name, words in FAILED.items() if name in cells)])


def _truths(report: LogReport) -> Table:
    """What is known beside what is estimated first; true values where a simulator tells them."""
    known = any(row.truth is not None for row in report.judged)
    table = Table("policy", *(("true value",) if known else ()), "observed return", "best supported estimate")
    table.title = f"{'True values, and what' if known else 'What'} the log supports best"
    for row in report.judged:
        observed = next((value_text(e) for e in row.estimates if e.estimator == "observed return"), "")
        table.add_row(row.label, *((_truth(row),) if known else ()), observed, "" if observed else _best(row))
    return table


def _truth(row: Judged) -> str:
    if row.truth is None:
        return "unknown"
    return f"{row.truth.value:.5f}" if row.truth.exact else truth_text(row.truth)


def _best(row: Judged) -> str:
    """Of what the log supports; otherwise that there is none."""
    best = best_supported(shown(row))
    return "none: not supported by the log" if best is None else f"{value_text(best)} {best.estimator}"


def _support(report: LogReport) -> list[Table]:
    names = ("policy", "n", "ESS", "ESS/n", "largest", "zero", "mean w", "rare", "OOD", "agrees")
    rows = []
    for row in (row for row in report.judged if row.name != "logged"):
        beside = support_of(row)
        weights = ("-",) * 6 if beside is None else _support_cells(beside)
        found = row.practice
        shares = (None,) * 3 if found is None else (found.rare, found.ood, found.agree)
        rows.append((row.label, *weights, *("-" if s is None else f"{100 * s:.1f} %" for s in shares)))
    several = report.judged[0].seed is None
    legend = {**LEGEND, "ESS": f"{LEGEND['ESS']}, of all seeds that of the worst one"} if several else LEGEND
    return without_empty("What the weights of each policy rest on, and its recommendations", names, rows, legend)


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
            if not name.startswith(POOR):
                cells = (np.mean(values), np.min(values), np.max(values), np.std(values, ddof=1))
                table.add_row("true value" if name == "truth" else name, *(number(float(c)) for c in cells))
        tables.append(table)
    return tables
