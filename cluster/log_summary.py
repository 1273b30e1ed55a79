"""What a reader of an evaluation on a log wants first; and what could not be estimated, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refork.cluster.log_words import SHORT, policies, shown, truth_text, value_text
from refork.envs.log_spec import Truth
from refork.replay.ope.estimate import Estimate, apart, best_supported

if TYPE_CHECKING:
    from refork.cluster.log_report import Judged, LogReport


def summary(report: LogReport) -> list[str]:
    """The trained policy against who acted; what the log supports; whether limits are kept, where there are any."""
    trained, logged = report.judged[0], report.judged[1]
    best = best_supported(shown(trained))
    lines = [_values(trained, logged, best), _support(trained, best)]
    return [*lines, _limits(trained, logged)] if trained.violations else lines


def _values(trained: Judged, logged: Judged, best: Estimate | None) -> str:
    own = "no estimate that the log supports" if best is None else f"{value_text(best)} by {best.estimator}"
    observed = value_text(logged.estimates[0])
    known = [
        f"{name} {truth_text(row.truth)}"
        for name, row in (("trained", trained), ("logged", logged))
        if row.truth is not None
    ]
    truths = f"; in truth: {', '.join(known)}" if known else ""
    return f"value: {trained.label}: {own}; logged: {observed} as observed{truths}"


def _support(trained: Judged, best: Estimate | None) -> str:
    if best is not None and best.support is not None:
        size = f"effective sample size {best.support.ess:.1f} of {best.support.n} episodes"
        return f"support: the log supports an estimate of {trained.label}: {size}"
    why = next((e.note for e in trained.estimates if e.estimator == "WIS" and e.note), "")
    return f"support: the log does not support an estimate of {trained.label}{f': {why}' if why else ''}"


def _limits(trained: Judged, logged: Judged) -> str:
    """Kept: not more often violated than by who acted."""
    found = [
        f"{limit} {_kept(own, logged.violations[limit], trained.true_violations.get(limit))}"
        for limit, own in trained.violations.items()
    ]
    return f"safety limits: {'; '.join(found)}"


def _kept(own: Estimate, logged: Estimate, truth: Truth | None) -> str:
    if own.status != "ok":
        known = "" if truth is None else f"; in truth {truth_text(truth)} steps an episode beyond it"
        return f"- the log cannot tell whether it is kept{known}"
    words = {1: "violated more than by who acted", 0: "kept as by who acted", -1: "kept better than by who acted"}
    known = "" if truth is None else f", in truth {truth_text(truth)}"
    steps = f"{value_text(own)} steps an episode beyond it{known}, logged {value_text(logged)}"
    return f"{words[apart(own, logged)]} ({steps})"


def undefined(report: LogReport) -> list[str]:
    """Estimators that no policy has, and why."""
    found: dict[str, set[str]] = {}
    for row in report.judged:
        for e in row.estimates:
            if e.status == "not defined":
                found.setdefault(e.note, set()).add(e.estimator)
    return [f"not defined for this log: {', '.join(sorted(names))}: {why}" for why, names in found.items()]


def failures(report: LogReport) -> list[str]:
    """Methods that failed for a reason that the tables have no room for."""
    every = [e for row in policies(report) for e in (*row.estimates, *row.violations.values())]
    found = dict.fromkeys((e.estimator, e.note) for e in every if e.status == "failed" and e.note not in SHORT)
    return [f"{name} failed: {why}" for name, why in found]
