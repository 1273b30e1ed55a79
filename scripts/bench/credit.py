"""Every estimator of credit on the chain: same policy, same tuning effort, every branch counted; exact success.

Each estimator tries the same learning rates with two amounts of sampling: of those without forks the group, of those
with forks what is forked. The setting of the greatest final success on validation tasks, over two seeds, is trained
again with other seeds and judged on other tasks. Told are the success at the end of the budget, and what it costs to
reach fixed shares: steps asked for, steps really executed (the same here: the chain has no cache), trajectories, CPU
seconds. A share that a seed does not reach counts as the whole budget, which favours who never does.

    python scripts/bench/credit.py [--quick] [--seeds 10] [--processes 2] [--work DIR] [--done] [--estimators ...]
                                    [--out FILE]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object:
`crr_over_grpo_executed` and `crr_over_grpo_trajectories` ([low, iqm, high], below 1 where CRR needs less, at the share
that is named), `heldout` (final success by estimator), `reach` (cost of every share, null where most seeds never do).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
from refork.scripts.bench.credit_plot import draw
from refork.scripts.bench.credit_runs import COSTS, cost_to_reach, is_judged, judged_run, tuned
from refork.scripts.bench.studies import Settings, interval, parsed, parser, report
from refork.trainers.stats import iqm, stratified_bootstrap

RATES = (0.2, 0.4, 0.8)
GROUPS = ({"group": 3}, {"group": 6})
FORKS = ({"forks": 2.0}, {"forks": 4.0})
MOST_FORKS = ({"forks_max": 8.0}, {"forks_max": 16.0})
CRR: dict[str, Settings] = {
    "crr": {},
    "crr_uniform": {"rule": "uniform"},
    "crr_cost_aware": {"rule": "cost_aware"},
    "crr_mixed": {"which": "mixed"},
    "crr_distil": {"which": "mixed", "distil": 0.5},
    "crr_pass_rate": {"which": "mixed", "rule": "pass_rate"},
    "crr_bisect": {"which": "mixed_failures", "rule": "bisect"},
}
"""Its tuned form, and what changes with other fork points, with failures forked too, and with distillation."""
ESTIMATORS: dict[str, tuple[Settings, Sequence[Settings]]] = {
    **{name: ({"kind": "crr", **changed}, MOST_FORKS) for name, changed in CRR.items()},
    "grpo": ({"kind": "grpo", "estimator": "grpo"}, GROUPS),
    "dr_grpo": ({"kind": "grpo", "estimator": "dr_grpo"}, GROUPS),
    "rloo": ({"kind": "grpo", "estimator": "rloo"}, GROUPS),
    "maxrl": ({"kind": "grpo", "estimator": "maxrl"}, GROUPS),
    "gigpo": ({"kind": "tree", "estimator": "gigpo"}, GROUPS),
    "rtmc": ({"kind": "tree", "estimator": "rtmc"}, GROUPS),
    "treerl": ({"kind": "tree", "estimator": "treerl"}, FORKS),
    "tree_grpo": ({"kind": "tree", "estimator": "tree_grpo"}, FORKS),
    "turn_credit": ({"kind": "tree", "estimator": "turn_credit"}, FORKS),
    "branpo": ({"kind": "tree", "estimator": "branpo"}, FORKS),
    "vineppo": ({"kind": "tree", "estimator": "vineppo"}, ({"alternatives": 2}, {"alternatives": 4})),
    "spo": ({"kind": "tree", "estimator": "spo"}, ({"alternatives": 2}, {"alternatives": 4})),
}
"""Of each estimator what is fixed, and the amounts of sampling it tries."""
QUICK = ("crr", "grpo", "treerl", "gigpo")
LEVELS = (0.3, 0.4, 0.5, 0.6, 0.7)


def tried(name: str, quick: bool) -> list[Settings]:
    """As many settings for each estimator."""
    fixed, amounts = ESTIMATORS[name]
    rates = RATES[:1] if quick else RATES
    return [{**fixed, "learning_rate": rate, **amount} for rate, amount in product(rates, amounts)]


def tune(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """The chosen setting, with the scores of all."""
    return tuned(options.work, name, tried(name, options.quick), 1 if options.quick else 2, options.budget)


def run(options: argparse.Namespace, name: str, seed: int) -> dict[str, list[float]]:
    """One judged seed."""
    settings = tune(options, name)["settings"]
    return judged_run(options.work, name, settings, seed, options.budget)


def costs(curves: Sequence[dict[str, list[float]]], level: float, cost: str) -> np.ndarray:
    """(seeds,); the whole budget where a seed never reached `level`."""
    found = [(cost_to_reach(curve, level, cost), curve[cost][-1]) for curve in curves]
    return np.array([whole if reached is None else reached for reached, whole in found])


def reach(curves: Sequence[dict[str, list[float]]]) -> dict[str, dict[str, float | None]]:
    """By level, the interquartile mean of every cost; None where less than half of the seeds got there."""
    rows: dict[str, dict[str, float | None]] = {}
    for level in LEVELS:
        there = [cost_to_reach(curve, level, "steps") is not None for curve in curves]
        told = 2 * sum(there) >= len(curves)
        rows[str(level)] = {c: float(iqm(costs(curves, level, c))) if told else None for c in COSTS}
    return rows


def ratio(ours: np.ndarray, theirs: np.ndarray) -> list[float]:
    """Of the interquartile means: [low, estimate, high], seeds of both drawn again."""
    k = len(ours)
    found = stratified_bootstrap([ours, theirs], statistic=lambda x: iqm(x[..., :k]) / iqm(x[..., k:]))
    return [found.low, found.estimate, found.high]


def highest(curves: Sequence[dict[str, list[float]]]) -> float:
    """The highest level that most seeds reached."""
    there = [level for level, row in reach(curves).items() if row["steps"] is not None]
    return float(there[-1]) if there else LEVELS[0]


def study(options: argparse.Namespace, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All estimators; each is told as it is finished."""
    names = [n for n in options.estimators if not options.done or is_judged(options.work, n, options.seeds)]
    if not options.done:
        list(pool.map(tune, [options] * len(names), names))
    waiting = {n: [pool.submit(run, options, n, seed) for seed in range(options.seeds)] for n in names}
    curves: dict[str, list[dict[str, list[float]]]] = {}
    result: dict[str, Any] = {"study": "credit", "world": "chain", "budget": options.budget, "seeds": options.seeds}
    result |= {"heldout": {}, "chosen": {}, "reach": {}, "curves": {}}
    for name, futures in waiting.items():
        curves[name] = [future.result() for future in futures]
        finals = [float(np.mean(curve["success"][-5:])) for curve in curves[name]]
        result["heldout"][name] = interval(finals)
        result["chosen"][name] = tune(options, name)
        result["reach"][name] = reach(curves[name])
        moments = zip(*(curve["success"] for curve in curves[name]), strict=True)
        result["curves"][name] = [interval(moment) for moment in moments]
        show(name, result["heldout"][name], result["reach"][name], result["chosen"][name]["settings"])
    if {"crr", "grpo"} <= curves.keys():
        result |= against(curves["crr"], curves["grpo"])
    return result


def against(ours: Sequence[dict[str, list[float]]], theirs: Sequence[dict[str, list[float]]]) -> dict[str, Any]:
    """What CRR spends for what GRPO spends, at the highest share that most seeds of GRPO reach."""
    level = highest(theirs)
    found = {f"crr_over_grpo_{cost}": ratio(costs(ours, level, cost), costs(theirs, level, cost)) for cost in COSTS}
    found["crr_over_grpo_executed"] = found.pop("crr_over_grpo_steps_executed")
    return {"at_share": level, **found}


def show(name: str, final: Sequence[float], row: Mapping[str, Mapping[str, float | None]], chosen: Settings) -> None:
    """One line for people."""
    known = {level: costs["steps"] for level, costs in row.items()}
    steps = (f"{level}: {'-' if spent is None else f'{spent / 1000:.0f}k'}" for level, spent in known.items())
    free = {k: v for k, v in chosen.items() if k not in ("kind", "estimator", "rule", "which", "distil")}
    print(f"{name:12} {final[1]:.3f} [{final[0]:.3f}, {final[2]:.3f}]  steps to {'  '.join(steps)}  {free}", flush=True)


def main() -> None:
    asked = parser(__doc__, "seeds", "four estimators, a quarter of the budget, one learning rate, 2 seeds: minutes")
    asked.add_argument("--estimators", nargs="*", choices=sorted(ESTIMATORS), help="default: all")
    options = parsed(asked, "seeds")
    options.estimators = options.estimators or (QUICK if options.quick else tuple(ESTIMATORS))
    options.budget = 40_000 if options.quick else 160_000
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        result = study(options, pool)
    report(result, options.out, draw)


if __name__ == "__main__":
    main()
