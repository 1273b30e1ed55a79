"""The study of several decision makers: Equal Line with 2 to 10 agents and cooperative navigation.

CFCQL against MACQL, OMAR, independent CQL and behaviour cloning on logs of four qualities. Of every method as many
settings are tried in every cell, and one is chosen from the log alone: the greatest value that fitted Q evaluation,
cross-fitted by episode, gives it. Scores are 0 for random agents, 100 for the scripted expert, by Monte Carlo in the
simulator. On Equal Line an agent sees its place among its neighbours, not all positions. Intervals: interquartile
mean over training seeds, 95 % bootstrap. D_CQL is measured between the learnt policies and a clone of the log's
behaviour. `gap` is what CFCQL is ahead of each other method.

    python scripts/bench/multi_agent.py [--quick] [--seeds 5] [--processes 2] [--work DIR] [--done] [--cells ...]
                                         [--out FILE]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from refork.scripts.bench.multi_agent_plot import QUALITIES, draw
from refork.scripts.bench.multi_agent_runs import DEPARTURES, Cell, chosen, is_judged, judged, known
from refork.scripts.bench.studies import Settings, interval, parsed, parser, report
from refork.trainers.fqe_stack import NetworkSettings
from refork.trainers.stats import iqm, stratified_bootstrap

TRIED: dict[str, tuple[Settings, ...]] = {
    "cfcql": tuple({"alpha": alpha} for alpha in (0.3, 1.0, 3.0, 10.0)),
    "macql": tuple({"alpha": alpha, "joint_actions": 64} for alpha in (0.3, 1.0, 3.0, 10.0)),
    "omar": tuple({"alpha": alpha} for alpha in (0.3, 1.0, 3.0, 10.0)),
    "cql": tuple({"alpha": alpha} for alpha in (0.3, 1.0, 3.0, 10.0)),
    "bc": tuple({"learning_rate": rate} for rate in (3e-4, 1e-3, 2e-3, 5e-3)),
}
"""As many settings for each method."""


def cells(quick: bool) -> list[Cell]:
    """The logs, in the order of what matters most."""
    if quick:
        return [*(_line(n, "medium_replay", 400, 500) for n in (2, 5)), _spread("medium", "discrete", 500)]
    sizes = {"medium_replay": (2, 3, 5, 8, 10), "medium": (2, 5, 10), "expert": (5, 10), "random": (5,)}
    found = [_line(n, quality, 1000, 1500) for quality, own in sizes.items() for n in own]
    found += [_spread(quality, "discrete", 4000) for quality in QUALITIES]  # a clone is far from done after 1,500
    return [*found, _spread("medium_replay", "continuous", 1600)]


def _line(n: int, quality: str, episodes: int, steps: int) -> Cell:
    options = (("n", n), ("observe", "neighbours"))
    return Cell(f"line-n{n} {quality}", "refork/EqualLine-v0", options, quality, episodes, shared(steps), 300)


def _spread(quality: str, actions: str, steps: int) -> Cell:
    options = (("n", 3), ("actions", actions))
    return Cell(f"spread-n3-{actions} {quality}", "refork/Particles-v0", options, quality, 2000, shared(steps), 600)


def shared(steps: int) -> tuple[tuple[str, Any], ...]:
    """Fields that all methods have in common: small batches, a step size that falls to zero."""
    how = (("batch", 64), ("gamma", 0.9), ("learning_rate", 2e-3), ("target_rate", 0.01), ("schedule", "cosine"))
    return (("updates", 10), ("steps_per_update", steps // 10), *how)


def run(work: Path, cell: Cell, method: str, seeds: int, quick: bool) -> dict[str, Any]:
    """Choose, train, judge."""
    fqe = NetworkSettings(hidden=(64,), steps=60 if quick else cell.fqe_steps, batch=128)
    choice = chosen(work, cell, method, TRIED[method], fqe)
    found = judged(work, cell, method, choice["settings"], seeds)
    return found | {"settings": choice["settings"], "rule": choice["rule"], "tuning_cpu_s": choice["cpu_s"]}


def gap(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Difference of the interquartile means: [low, estimate, high], seeds of both drawn again."""
    k = len(ours)
    found = stratified_bootstrap([ours, theirs], statistic=lambda x: iqm(x[..., :k]) - iqm(x[..., k:]))
    return [found.low, found.estimate, found.high]


def study(options: argparse.Namespace, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All cells; each is told as it is finished."""
    shared = (options.seeds, options.quick)
    waiting = {
        cell: {method: pool.submit(run, options.work, cell, method, *shared) for method in TRIED}
        for cell in cells(options.quick)
        if cell.name in options.cells
        if not options.done or all(is_judged(options.work, cell, method) for method in TRIED)
    }
    result: dict[str, Any] = {"study": "multi_agent"}
    details: dict[str, Any] = {"truth": {}, "chosen": {}, "d_cql": {}, "gap": {}, "returns": {}}
    spent = 0.0
    for cell, futures in waiting.items():
        found = {method: future.result() for method, future in futures.items()}
        result[cell.name] = {method: interval(row["scores"]) for method, row in found.items()}
        details["truth"][cell.name] = known(options.work, cell)
        details["chosen"][cell.name] = {method: row["settings"] for method, row in found.items()}
        others = {method: found[method]["scores"] for method in TRIED if method != "cfcql"}
        details["gap"][cell.name] = {method: gap(found["cfcql"]["scores"], own) for method, own in others.items()}
        details["returns"][cell.name] = {method: row["returns"] for method, row in found.items()}
        departures = {m: [row[k] for k in DEPARTURES] for m, row in found.items() if DEPARTURES[0] in row}
        details["d_cql"] |= {cell.name: departures} if departures else {}
        spent += sum(row["cpu_s"] + row["tuning_cpu_s"] for row in found.values())
        show(cell.name, result[cell.name], details["truth"][cell.name])
    details["rule"] = found["cfcql"]["rule"]
    return result | details | {"seeds": options.seeds, "cpu_minutes": spent / 60}


def show(name: str, row: Mapping[str, Sequence[float]], truth: Mapping[str, float]) -> None:
    """One line for people."""
    told = "  ".join(f"{method} {middle:6.1f} [{low:.0f}, {high:.0f}]" for method, (low, middle, high) in row.items())
    print(f"{name:42} {told}  log {truth['behaviour']:.1f}", flush=True)


def main() -> None:
    asked = parser(__doc__, "seeds", "short trainings, few cells, 2 seeds: minutes")
    asked.add_argument("--cells", nargs="*", help="names of logs, as they are printed; default: all")
    options = parsed(asked, "seeds")
    options.cells = options.cells or [cell.name for cell in cells(options.quick)]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        result = study(options, pool)
    report(result, options.out, draw)


if __name__ == "__main__":
    main()
