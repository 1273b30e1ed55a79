"""Numbers of an evaluation on a log as words: which policies and estimators are shown, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from refork.envs.log_spec import Truth
from refork.replay.ope.estimate import NOT_CONVERGED, OUT_OF_BOUNDS, POOR, Estimate

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport

MARKS = {"ok": "", "by model": " m", "unsupported": " u"}
SHORT = {NOT_CONVERGED: "failed: not converged", OUT_OF_BOUNDS: "failed: impossible"}
"""Why there is no value, where there is room for a few words."""


def policies(report: LogReport) -> list[Judged]:
    """Those to compare: the trained one first (of several seeds: their mean), then all others."""
    return [report.judged[0], *(row for row in report.judged[1:] if row.seed is None)]


def shown(row: Judged) -> list[Estimate]:
    """Those that the tables show: not what is poor, and of OffCEM the first model's alone. The rest is in the JSON."""
    found = [e for e in row.estimates if not e.estimator.startswith(POOR)]
    clusters = [e for e in found if e.estimator.startswith("OffCEM")]
    return [e for e in found if e not in clusters[1:]]


def value_text(found: Estimate | None) -> str:
    """With its interval and mark, or in short why there is none."""
    if found is None:
        return ""
    if found.value is None:
        none = found.status == "unsupported" and found.support is not None
        return f"none: ESS {found.support.ess:.1f}" if none else SHORT.get(found.note, found.status)  # type: ignore[union-attr]
    return f"{number(found.value)} [{number(found.low)}, {number(found.high)}]{MARKS[found.status]}"


def number(value: float | None) -> str:
    if value is None or np.isnan(value):
        return "-"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}"


def truth_text(truth: Truth | None) -> str:
    """A sampled true value with its interval; of an exact one no interval."""
    if truth is None:
        return ""
    return number(truth.value) + ("" if truth.exact else f" [{number(truth.low)}, {number(truth.high)}]")
