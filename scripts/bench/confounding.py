"""The study of hidden confounding: Delphic against CQL and behaviour cloning, its strength Gamma swept.

Two simulators whose logs hide what clinicians saw: the sepsis model with diabetes hidden (the odds of a vasopressor
are Gamma times as high with diabetes), and a clinic of one choice in which the log prefers a treatment that is worse.
Every seed is a log of its own, with networks of its own. Of every method three settings are tried, and one is chosen
from the log alone: the greatest value that fitted Q evaluation, cross-fitted by patient, gives it (which the confounder
misleads as well). Values are exact. Intervals: interquartile mean over logs, 95 % bootstrap. Gamma 1 is the control:
nothing is confounded, and the penalty must change nothing.

    python scripts/bench/confounding.py [--quick] [--seeds 5] [--processes 2] [--work DIR] [--done] [--out FILE]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from refork.scripts.bench.confounding_plot import draw
from refork.scripts.bench.confounding_runs import TRIED, Cell, judged, known, place
from refork.scripts.bench.studies import interval, parsed, parser, report


def cells(quick: bool) -> list[Cell]:
    if quick:
        clinic = [Cell("clinic", strength, 800, 2, 15) for strength in (1.0, 10.0)]
        return [*clinic, *(Cell("sepsis", strength, 1000, 2, 2) for strength in (1.0, 10.0))]
    clinic = [Cell("clinic", strength, 2000, 2, 15) for strength in (1.0, 2.0, 5.0, 10.0, 25.0)]
    return [*clinic, *(Cell("sepsis", strength, 3000, 4, 6) for strength in (1.0, 5.0, 30.0))]


def study(options: argparse.Namespace, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All cells; each is told as it is finished."""
    waiting = {c: [pool.submit(judged, options.work, c, s) for s in _seeds(options, c)] for c in cells(options.quick)}
    waiting = {cell: futures for cell, futures in waiting.items() if futures}
    result: dict[str, Any] = {"study": "confounding"}
    details: dict[str, dict[str, Any]] = {
        "logs": {},
        "truth": {},
        "chosen": {},
        "all_settings": {},
        "worlds": {},
        "estimates": {},
    }
    spent = 0.0
    for cell, futures in waiting.items():
        logs = [future.result() for future in futures]
        result[cell.title] = {method: interval([log[method]["value"] for log in logs]) for method in TRIED}
        details["logs"][cell.title] = len(logs)
        details["truth"][cell.title] = known(cell)
        details["chosen"][cell.title] = {method: [log[method]["chosen"] for log in logs] for method in TRIED}
        details["all_settings"][cell.title] = {method: _by_setting(logs, method) for method in TRIED}
        details["estimates"][cell.title] = {m: [max(log[m]["estimates"]) for log in logs] for m in TRIED}
        details["worlds"][cell.title] = {
            m: _means([log[m]["metrics"] for log in logs]) for m in TRIED if "delphic" in m
        }
        spent += sum(log["cpu_s"] for log in logs)
        show(cell, result[cell.title], details)
    return result | details | {"cpu_minutes": spent / 60}


def _seeds(options: argparse.Namespace, cell: Cell) -> list[int]:
    """The logs of a cell; of an interrupted study those that are done."""
    return [s for s in range(options.seeds) if not options.done or place(options.work, cell, s).exists()]


def _by_setting(logs: Sequence[Mapping[str, Any]], method: str) -> list[list[float]]:
    """Intervals of each setting that was tried, as if it had been fixed."""
    return [interval(values) for values in zip(*(log[method]["values"] for log in logs), strict=True)]


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def show(cell: Cell, row: Mapping[str, Sequence[float]], details: Mapping[str, Mapping[str, Any]]) -> None:
    """A line for people."""
    told = "  ".join(f"{method} {middle:.3f} [{low:.3f}, {high:.3f}]" for method, (low, middle, high) in row.items())
    truth = "  ".join(f"{name} {value:.3f}" for name, value in details["truth"][cell.title].items())
    worlds = details["worlds"][cell.title]
    changed, weighed = worlds["delphic"]["changed_actions"], worlds["delphic, adjusted"]["worlds/adjustment"]
    print(f"{cell.title:12} {told} | {truth} | changed {changed:.3f}  adjustment {weighed:.3f}", flush=True)


def main() -> None:
    options = parsed(parser(__doc__, "seeds", "small logs, short trainings, 2 of them: minutes"), "seeds")
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        result = study(options, pool)
    report(result, options.out, draw)


if __name__ == "__main__":
    main()
