"""The study of log sizes: every trainer's exact value in ICU-Sepsis, from 500 to 50,000 episodes of the clinicians.

Anchors: the clinicians .7818, the best policy .8751. The two tabular baselines are planning on the counted model with
the count-based lower bound, and with a minimum count; their knobs are those that were best with hindsight, ours are
chosen from the log alone: by cross-validation over patients (pvi), or as the setting of the greatest value that fitted
Q evaluation, cross-fitted by patient, gives it on a log that is not judged (all others, as many settings each).
Each log is another draw of episodes. Trainers of several decision makers learn fluids and vasopressors as two.

    python scripts/bench/log_sizes.py [--quick] [--logs 5] [--processes 2] [--work DIR] [--done] [--out FILE]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.log_source import LogSource
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.scripts.bench.kept import is_kept, kept
from refork.scripts.bench.studies import Settings, choice, interval, parsed, parser, report, trained
from refork.trainers.config import JobConfig, trainer_config_class

SIZES = (500, 2500, 10000, 50000)
PLANS = {500: 400, 2500: 200, 10000: 50, 50000: 20}
"""Logs that planning is judged on: it takes seconds, and small logs differ more."""
TUNING_LOG = 1000
"""Its seed; settings are chosen on it, and it is not judged."""

PLANNED: dict[str, dict[int, Settings]] = {
    "pvi": {size: {} for size in SIZES},
    "lower_bound": {size: {"shrinkage": 0.0, "prior": 0.0, "min_count": 1, "penalty": 0.1} for size in SIZES},
    "min_count": {
        size: {"shrinkage": 0.0, "prior": 0.0, "min_count": least}
        for size, least in zip(SIZES, (2, 5, 10, 50), strict=True)
    },
}
"""Ours, and the tabular baselines with the knobs that were best with hindsight."""

TRIED: dict[str, tuple[Settings, ...]] = {
    "bc": tuple({"shrink": shrink} for shrink in (0.0, 1e-3, 1e-2)),
    "cql": tuple({"alpha": alpha} for alpha in (0.003, 0.01, 0.05)),
    "iql": tuple({"beta": beta, "expectile": 0.7, "act": "best"} for beta in (3.0, 10.0, 30.0)),
    "bcq": tuple({"threshold": threshold} for threshold in (0.1, 0.3, 0.6)),
    "cfcql": tuple({"alpha": alpha} for alpha in (0.003, 0.01, 0.05)),
    "macql": tuple({"alpha": alpha} for alpha in (0.003, 0.01, 0.05)),
    "omar": tuple({"alpha": alpha} for alpha in (0.003, 0.01, 0.05)),
    "ogsrl": tuple({"ood_budget": budget} for budget in (0.01, 0.05, 0.2)),
    "delphic": tuple({"alpha": 0.01, "penalty": penalty, "world_epochs": 5} for penalty in (0.0, 0.5, 2.0)),
}
"""As many settings for each network trainer."""
FACTORED = ("cfcql", "macql", "omar")
LARGEST = {"delphic": 2500, **dict.fromkeys(("cfcql", "macql", "omar", "ogsrl"), 10_000)}
"""Episodes of the largest logs that these are tried on: Delphic fits its worlds to whole episodes, the others take
several times as long as the rest."""


def job(method: str, settings: Settings, size: int, log_seed: int, tuning: bool, quick: bool) -> JobConfig:
    """As a job file would say it. Tuning leaves patients to validate on; what is judged has learnt from all."""
    kind = "pvi" if method in PLANNED else method
    shared = {"gamma": 1.0, "updates": 4, "learning_rate": 1e-3}
    network = {"steps_per_update": 25 if quick else 500, "batch": 512, "schedule": "linear", "target_rate": 0.01}
    known = trainer_config_class(kind).model_fields
    given = {**shared, **({} if kind == "pvi" else network)}
    options = {
        "behaviour": "expert",
        "episodes": size,
        "log_seed": log_seed,
        "fractions": (0.8, 0.2, 0.0) if tuning else (1.0, 0.0, 0.0),
        "simulator": {"factored": True} if method in FACTORED else {},
    }
    return JobConfig.model_validate(
        {
            "seed": log_seed,
            "env": {"id": "refork/IcuSepsis-v0", "options": options},
            "agent": {"kind": "q_networks", "options": {"hidden": [64, 64]}},
            "trainer": {"kind": kind, **{k: v for k, v in given.items() if k in known}, **settings},
        }
    )


def chosen(work: Path, method: str, size: int, quick: bool) -> dict[str, Any]:
    """The setting of a network trainer for logs of that size, from a log alone."""
    tried = TRIED[method]
    jobs = [job(method, settings, size, TUNING_LOG, True, quick) for settings in tried]
    return dict(kept(work, f"{method}-{size}-chosen", lambda: choice(jobs, tried)))


def judged(work: Path, method: str, settings: Settings, size: int, log_seed: int, quick: bool) -> dict[str, Any]:
    """Exact value of what one log teaches."""

    def judge() -> dict[str, Any]:
        begun = time.process_time()
        asked = job(method, settings, size, log_seed, False, quick)
        source = LogSource(asked.env)
        (policy,) = trained(asked, source)
        assert source.simulator is not None
        return {"value": source.simulator.truth(policy).value, "cpu_s": time.process_time() - begun}

    return dict(kept(work, f"{method}-{size}-{log_seed}", judge))


def planned(work: Path, method: str, size: int, seeds: Sequence[int]) -> list[float]:
    """Exact values over many logs."""
    return [judged(work, method, PLANNED[method][size], size, seed, False)["value"] for seed in seeds]


def learnt(work: Path, method: str, size: int, logs: int, quick: bool) -> dict[str, Any]:
    best = chosen(work, method, size, quick)
    rows = [judged(work, method, best["settings"], size, seed, quick) for seed in range(logs)]
    return {**best, "values": [row["value"] for row in rows]}


def study(options: argparse.Namespace, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All sizes; each is told as it is finished."""
    sizes = SIZES[:2] if options.quick else SIZES
    logs = {size: 2 * options.logs if options.quick else PLANS[size] for size in sizes}
    plans: dict[int, dict[str, Future[list[float]]]] = {
        size: {m: pool.submit(planned, options.work, m, size, range(logs[size])) for m in PLANNED} for size in sizes
    }
    nets = {
        size: {
            m: pool.submit(learnt, options.work, m, size, options.logs, options.quick)
            for m in options.methods
            if size <= LARGEST.get(m, size) and not (options.done and _unfinished(options, m, size))
        }
        for size in sizes
    }
    result: dict[str, Any] = {"study": "log_sizes"}
    details: dict[str, Any] = {"truth": truths(), "over_baselines": {}, "chosen": {}}
    for size in sizes:
        values = {m: future.result() for m, future in plans[size].items()}
        found = {m: future.result() for m, future in nets[size].items()}
        row = {m: interval(v) for m, v in (values | {m: f["values"] for m, f in found.items()}).items()}
        result[f"{size}"] = row
        ours = np.array(values["pvi"])
        details["over_baselines"][f"{size}"] = {
            m: interval(ours - np.array(values[m])) for m in ("lower_bound", "min_count")
        }
        details["chosen"][f"{size}"] = {m: {k: f[k] for k in ("settings", "rule", "scores")} for m, f in found.items()}
        show(f"{size} episodes", row)
        show("  pvi over", details["over_baselines"][f"{size}"])
    return result | details | {"logs": options.logs, "planned_logs": logs}


def _unfinished(options: argparse.Namespace, method: str, size: int) -> bool:
    return not all(is_kept(options.work, f"{method}-{size}-{seed}") for seed in range(options.logs))


def truths() -> dict[str, float]:
    simulator = IcuSepsis()
    return {name: simulator.behaviour_truth(name).value for name in ("expert", "random", "optimal")}


def show(name: str, row: Mapping[str, Sequence[float]]) -> None:
    """For people."""
    told = "  ".join(f"{method} {middle:.4f} [{low:.4f}, {high:.4f}]" for method, (low, middle, high) in row.items())
    print(f"{name:16} {told}", flush=True)


def parse() -> argparse.Namespace:
    asked = parser(__doc__, "logs", "two sizes, short trainings, 2 logs: minutes")
    asked.add_argument("--methods", nargs="*", default=list(TRIED), choices=list(TRIED))
    return parsed(asked, "logs")


def main() -> None:
    options = parse()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        result = study(options, pool)
    report(result, options.out)


if __name__ == "__main__":
    main()
