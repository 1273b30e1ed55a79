"""The study of guarded learning: OGSRL with and without its guardian against CQL and cloning, judged outside its model.

Two simulators: ICU-Sepsis (logs of states; returns and occupancies solved exactly) and the synthetic cohort (logs of 48
vitals and labs, 25 doses, limits on oxygen saturation and urine output; 20,480 simulated patients) with logs of its
scattered clinicians and of a narrow protocol. Each of the logs is another draw of patients, with its own training.
Settings, three for every method, are chosen once a cell by fitted Q evaluation, cross-fitted by patient, on a log that
is not judged. OOD share: recommendations, in situations that the policy itself reaches in the true simulator, whose
density in the log's training part is under the 5th percentile of the logged decisions' own. Violations: share of the
situations reached with SpO2 < 92 %, or urine < 0.5 mL/kg/h. Intervals: interquartile mean, bootstrap over logs, 95 %.

    python scripts/bench/guarded.py [--quick] [--logs 5] [--work DIR] [--done] [--out FILE] [--cells ...]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from refork.scripts.bench.guarded_runs import CELLS, METRICS, Cell, chosen, is_judged, judged, known
from refork.scripts.bench.studies import Settings, interval, parsed, parser, report

LIMITS = (
    {"column": "o:SpO2", "below": 92.0, "budget": 0.015},
    {"column": "o:urine_ml_kg_h", "below": 0.5},
)
"""About half of what the clinicians' patients spend of the first, no more than that of the second."""
METHODS: dict[str, tuple[str, Settings, tuple[Settings, ...]]] = {
    "bc": ("bc", {}, tuple({"shrink": x} for x in (0.0, 1e-3, 1e-2))),
    "cql": ("cql", {}, tuple({"alpha": x} for x in (0.02, 0.1, 0.5))),
    "ogsrl": ("ogsrl", {}, tuple({"clinician_weight": x} for x in (0.003, 0.01, 0.03))),
    "ogsrl_unguarded": (
        "ogsrl",
        {"guardian": False},
        tuple({"clinician_weight": x} for x in (0.003, 0.01, 0.03)),
    ),
}
"""Trainer, what it is always given, and the settings tried: as many for each."""


def setting(cell: Cell, method: str, quick: bool) -> tuple[str, Settings, tuple[Settings, ...]]:
    """With the limits that the cell has, and a model that is fitted for seconds where it is quick."""
    kind, fixed, tried = METHODS[method]
    if kind == "ogsrl":
        fixed = {**fixed, "safety": LIMITS if cell.limited else (), "model_epochs": 3 if quick else 8, "rollout": 1}
    return kind, fixed, tried


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"study": "guarded"}
    parts: dict[str, Any] = {metric: {} for metric in METRICS[1:]} | {"truth": {}, "chosen": {}}
    for cell in (CELLS[name] for name in options.cells):
        rows: dict[str, dict[str, list[float]]] = {}
        parts["truth"][cell.name] = known(options.work, cell)
        for method in options.methods:
            if options.done and not all(is_judged(options.work, cell, method, log) for log in range(options.logs)):
                continue
            kind, fixed, tried = setting(cell, method, options.quick)
            best = chosen(options.work, cell, method, (kind, fixed, tried), options.quick)
            parts["chosen"].setdefault(cell.name, {})[method] = best
            found = [
                judged(options.work, cell, method, (kind, {**fixed, **best["settings"]}), log, options.quick)
                for log in range(options.logs)
            ]
            rows[method] = {metric: interval([f[metric] for f in found]) for metric in METRICS if metric in found[0]}
            show(cell.name, method, rows[method])
        for metric in METRICS:
            of_metric = {method: row[metric] for method, row in rows.items() if metric in row}
            if of_metric:
                (result if metric == "return" else parts[metric])[cell.name] = of_metric
    return result | parts | {"logs": options.logs}


def show(cell: str, method: str, row: Mapping[str, Sequence[float]]) -> None:
    """For people."""
    told = "  ".join(f"{metric} {middle:.4f} [{low:.4f}, {high:.4f}]" for metric, (low, middle, high) in row.items())
    print(f"{cell:18} {method:16} {told}", flush=True)


def main() -> None:
    asked = parser(__doc__, "logs", "short trainings on two logs: minutes", parallel=False)
    asked.add_argument("--cells", nargs="*", default=list(CELLS), choices=list(CELLS))
    asked.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    options = parsed(asked, "logs")
    report(run(options), options.out)


if __name__ == "__main__":
    main()
