"""Tables of an evaluation on a log, each readable at 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from refork.replay.ope.estimate import RANKED, Estimate
from refork.replay.ope.weights import Support
from refork.replay.support import DoseBin
from rich.table import Table

if TYPE_CHECKING:
    from refork.cluster.log_judgement import Judged, LogReport

ESTIMATORS_A_TABLE = 3
LEFT_OUT = ("IS", "DR ", "observed")
"""In the JSON only: what is there to show how it fails, or has a better form beside it; of OffCEM the first model's."""
MARKS = {"ok": "", "by model": " m", "unsupported": " u"}


def log_tables(report: LogReport) -> list[Table]:
    """Values with intervals, what they rest on, spread of training, models, who acted, doses."""
    tables = [*_values(report), _support(report), *_spread(report), _models(report), *_behaviour(report)]
    return [*tables, *_doses(report), *_violations(report)]


def _label(row: Judged) -> str:
    return row.name if row.seed is None else f"{row.name} {row.seed}"


def shown(row: Judged) -> list[Estimate]:
    """Those that the tables show."""
    found = [e for e in row.estimates if not e.estimator.startswith(LEFT_OUT)]
    clusters = [e for e in found if e.estimator.startswith("OffCEM")]
    return [e for e in found if e not in clusters[1:]]


def _values(report: LogReport) -> list[Table]:
    names = list(dict.fromkeys(e.estimator for row in report.judged for e in shown(row)))
    tables = [_truths(report)]
    for start in range(0, len(names), ESTIMATORS_A_TABLE):
        some = names[start : start + ESTIMATORS_A_TABLE]
        title = f"Values estimated on {report.split} patients, 95 % intervals (m: by model, u: unsupported)"
        table = Table("policy", *some, title=title if not start else None)
        for row in report.judged:
            own = {e.estimator: e for e in row.estimates}
            if any(name in own for name in some):
                table.add_row(_label(row), *(value_text(own.get(name)) for name in some))
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
        table.add_row(_label(row), truth, observed, "" if observed else _best(row))
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


def _support(report: LogReport) -> Table:
    names = ("n", "ESS", "ESS/n", "largest", "zero", "mean w", "rare", "OOD", "agrees")
    table = Table("policy", *names, title="What the weights of each policy rest on, and its recommendations")
    for row in report.judged:
        if row.name == "logged":
            continue
        beside = support_of(row)
        weights = ("-",) * 6 if beside is None else _support_cells(beside)
        found = row.practice
        shares = (None,) * 3 if found is None else (found.rare, found.ood, found.agree)
        table.add_row(_label(row), *weights, *("-" if s is None else f"{100 * s:.1f} %" for s in shares))
    table.caption = (
        "ESS: effective sample size; largest, zero: share of the largest weight, of zero ones; mean w: 1 is expected;"
        " rare: recommended actions that clinicians take with probability < 1 %; OOD: under the 5th percentile of"
        " training densities; agrees: with the logged action"
    )
    return table


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


def _models(report: LogReport) -> Table:
    names = ("converged", "last change", "values", "can be", "TD rms", "TD mean")
    table = Table("FQE", *names, title="Models of Q, over all policies; temporal differences of patients held out")
    methods = dict.fromkeys(method for row in report.judged for method in row.models)
    for method in methods:
        found = [row.models[method] for row in report.judged if method in row.models]
        curves = [curve for f in found for curve in f.curves if len(curve) > 1]
        change = max((abs(c[-1][1] - c[-2][1]) for c in curves), default=float("nan"))
        low, high = min(f.lowest for f in found), max(f.highest for f in found)
        table.add_row(
            method,
            f"{sum(f.converged for f in found)} of {len(found)}",
            f"{change:.1e}",
            f"{low:.3g} to {high:.3g}",
            f"{found[0].bounds[0]:.3g} to {found[0].bounds[1]:.3g}",
            f"{max(f.td_rms for f in found):.3g}",
            f"{max((f.td_mean for f in found), key=abs):.1e}",
        )
    return table


def _behaviour(report: LogReport) -> list[Table]:
    behaviour = report.part.behaviour
    head = Table("decision maker", "NLL", "NLL of shares", "ECE", title=f"Who acted: {behaviour.kind}")
    names = report.part.log.spec.action.names
    for i, found in enumerate(behaviour.calibration):
        name = names[i] if i < len(names) else str(i)
        head.add_row(name, f"{found.nll:.4f}", f"{found.nll_marginal:.4f}", f"{found.ece:.4f}")
    if not behaviour.calibration:
        head.add_row("all", f"{behaviour.nll:.4f}", "-", "not defined: continuous")
    head.caption = f"used for weights: {report.part.source}"
    return [head, *(_reliability(report, i) for i in range(len(behaviour.calibration)))]


def _reliability(report: LogReport, maker: int) -> Table:
    found = report.part.behaviour.calibration[maker]
    names = report.part.log.spec.action.names
    title = f"Reliability: {names[maker] if maker < len(names) else maker}"
    table = Table("probability said", "actions", "said", "seen", title=title)
    for row in found.table:
        table.add_row(f"{row.low:g} to {row.high:g}", str(row.count), f"{row.said:.4f}", f"{row.seen:.4f}")
    return table


def _doses(report: LogReport) -> list[Table]:
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


def _violations(report: LogReport) -> list[Table]:
    rows = [row for row in report.judged if row.violations]
    if not rows:
        return []
    limits = list(rows[0].violations)
    table = Table("policy", *limits, title="Steps an episode that lead to a violation, estimated by FQE")
    for row in rows:
        table.add_row(_label(row), *(f"{row.violations[limit]:.2f}" for limit in limits))
    return [table]


def rankings(report: LogReport) -> list[str]:
    """Best first, by each estimator that may rank at least two policies."""
    lines = []
    for name in dict.fromkeys(e.estimator for row in report.judged for e in shown(row)):
        values = {
            _label(row): e.value
            for row in report.judged
            for e in row.estimates
            if e.estimator == name and e.status in RANKED and e.value is not None and row.seed is None
        }
        if len(values) > 1:
            lines.append(f"ranking by {name}: {' > '.join(sorted(values, key=lambda key: -values[key]))}")
    return lines
