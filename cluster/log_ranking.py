"""Policies on a log in order, by what the log supports."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from refork.cluster.log_words import policies, shown
from refork.replay.ope.estimate import apart, ranking

if TYPE_CHECKING:
    from refork.cluster.log_report import LogReport

PREFERRED = ("WDR", "WIS", "per-decision", "OffCEM", "FQE")
"""Beginnings of estimators: which ranking is printed of those that rank equally many policies."""


def rankings(report: LogReport) -> dict[str, dict[str, list[str]]]:
    """By estimator: who is supported, and all with those of a model alone among them; best first."""
    by_policy = {row.label: row.estimates for row in policies(report)}
    names = dict.fromkeys(e.estimator for row in policies(report) for e in shown(row))
    found = {
        name: {"supported": ranking(by_policy, name), "with those by model": ranking(by_policy, name, True)}
        for name in names
    }
    return {name: orders for name, orders in found.items() if orders["with those by model"]}


def ranking_lines(report: LogReport) -> list[str]:
    """One line: the estimator that ranks the most policies that the log supports; or that there is none."""
    found = sorted(rankings(report).items(), key=lambda item: [item[0].startswith(p) for p in PREFERRED], reverse=True)
    name, orders = max(found, key=lambda item: len(item[1]["supported"]), default=("", {"supported": []}))
    if len(orders["supported"]) > 1:
        return [f"ranking by {name}: {_joined(report, name, orders['supported'])}"]
    return ["ranking: none, the log supports fewer than two policies; orders by a model alone are in the JSON"]


def _joined(report: LogReport, name: str, order: list[str]) -> str:
    """With "~" where the interval of a difference holds 0, and who is left out."""
    own = {row.label: e for row in policies(report) for e in row.estimates if e.estimator == name}
    text = order[0]
    for first, second in pairwise(order):
        text += f" {'>' if apart(own[first], own[second]) > 0 else '~'} {second}"
    out = [row.label for row in policies(report) if row.label not in order and row.name != "logged"]
    alike = " (~: the interval of their difference holds 0)" if "~" in text else ""
    return text + alike + (f"; not ranked, for want of support: {', '.join(out)}" if out else "")
