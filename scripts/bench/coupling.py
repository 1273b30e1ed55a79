"""The coupling study: views and updates, small and regular to large and irregular, against heuristics and the bound.

One policy per variant and seed is trained at 20 sites over all domains and couplings (the grid job,
`trainers/recipes/graph_grid.toml`: equal games, equal updates, all but the prior ones cloned from the same heuristic
first) and played greedily on held-out games of 10 to 80 sites, cleared exactly. Strengths were chosen for each update
from the same number of settings, on validation games. Intervals: interquartile mean,
bootstrap over seeds and instances together, 95 %. `gain` is paired: the same games, mean difference of the fractions.

    python scripts/bench/coupling.py [--quick] [--seeds 5] [--processes 2] [--work DIR] [--parts ...]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.game_tables import cell_order
from refork.envs.graph_game.generate import parse_name
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.scripts.bench.coupling_runs import Fractions, Variant, played, trained, weights_of
from refork.scripts.bench.kept import kept
from refork.trainers.failures import Signs, failure
from refork.trainers.stats import Interval, bootstrap, crossed_bootstrap, mean

QUICK = (
    *("--trainer.updates", "6", "--trainer.warm_updates", "2", "--trainer.critic_updates", "1"),
    *("--trainer.tasks_per_update", "12", "--env.options.evaluate_sizes", "[10,20]", "--env.options.held_out", "2"),
)
TRANSFER = tuple(f"{d}-irregular-n320-{200_000 + i}" for d in ("charging", "hydrogen", "vaccine") for i in range(2))
"""Games of the largest size."""
UPDATES: dict[str, tuple[str, ...]] = {
    "pmd": ("--trainer.update", "pmd"),
    "ppo_clip": ("--trainer.update", "ppo_clip"),
    "ppo_kl": ("--trainer.update", "ppo_kl"),
    "mmd": ("--trainer.update", "mmd", "--trainer.magnet", "initial"),
    "mappo": ("--trainer.update", "mappo"),
}
STRENGTHS: dict[str, tuple[tuple[str, ...], ...]] = {
    "pmd": tuple(("--trainer.eta", x) for x in ("0.3", "1.0", "3.0")),
    "ppo_clip": tuple(("--trainer.clip", x) for x in ("0.1", "0.2", "0.3")),
    "ppo_kl": tuple(("--trainer.kl_target", x) for x in ("0.003", "0.01", "0.03")),
    "mmd": tuple(("--trainer.tau", x, "--trainer.eta", "1.0") for x in ("0.01", "0.05", "0.2")),
    "mappo": tuple(("--trainer.clip", x) for x in ("0.1", "0.2", "0.3")),
}
"""Tried for each update: as many for each."""
PRIOR = (
    *("--agent.options.prior", "4.0", "--trainer.warm_updates", "0", "--trainer.critic_updates", "4"),
    *("--trainer.learning_rate", "0.001"),
)
FORKED = (*("--trainer.improve_candidates", "8", "--trainer.improve_states", "0.1", "--trainer.distil", "2.0"),)
SEARCHED = "masked/pmd+prior"
CANDIDATES = 8
"""Joint moves that this variant tries at every decision, when it is judged as a variant of its own."""
HARD = (
    *("--env.options.domains", '["charging"]', "--env.options.alignment", "general", "--trainer.warm_updates", "0"),
    *("--trainer.critic_updates", "0", "--trainer.learning_rate", "0.005", "--trainer.schedule", "constant"),
    *("--trainer.epochs", "10", "--trainer.minibatch", "8", "--trainer.tasks_per_update", "16"),
    *("--trainer.updates", "36", "--evaluate.every", "6", "--env.options.validation", "6"),
    *("--env.options.evaluate_sizes", "[20,80]"),
)
"""The regime in which drift should show: general-sum, constant steps, ten epochs, nothing cloned, no entropy bonus."""
HARD_VARIANTS = {
    "pmd, eta .1": (*UPDATES["pmd"], "--trainer.eta", "0.1"),
    "pmd, eta 1": (*UPDATES["pmd"], "--trainer.eta", "1.0"),
    "ppo_clip": UPDATES["ppo_clip"],
    "ppo_kl": UPDATES["ppo_kl"],
    "mmd": (*UPDATES["mmd"], "--trainer.eta", "0.1", "--trainer.tau", "0.02"),
    "mappo": UPDATES["mappo"],
}


class Study:
    """Runs parts on a pool, each done once."""

    def __init__(self, work: Path, pool: ProcessPoolExecutor, seeds: int, quick: bool) -> None:
        self.work, self.pool, self.seeds = work, pool, seeds
        self.common = QUICK if quick else ()
        self.quick = quick

    def heuristics(self) -> dict[str, Fractions]:
        """Fractions of every heuristic by task."""
        waiting = {
            rule: self.pool.submit(_play_kept, self.work, f"rule_{rule}", {}, rule, 0, self.common)
            for rule in HEURISTICS
            if rule != "pass"
        }
        return {rule: future.result() for rule, future in waiting.items()}

    def chosen(self) -> dict[str, tuple[str, ...]]:
        """For each update the strength that does best on validation games after half a run, on a seed of its own.
        Views and prior play no part in it."""
        if self.quick:
            return {name: options[1] for name, options in STRENGTHS.items()}
        futures = {
            name: [self.pool.submit(_train_kept, self.work, v, 100, ()) for v in self._tried(name)]
            for name in STRENGTHS
        }
        scores = {name: [_score(f.result()["rows"]) for f in runs] for name, runs in futures.items()}
        print(f"tuning: {scores}", flush=True)
        return {name: STRENGTHS[name][int(np.argmax(own))] for name, own in scores.items()}

    def _tried(self, name: str) -> list[Variant]:
        extra = ("--trainer.updates", "20", "--trainer.warm_updates", "6", "--evaluate.every", "20")
        return [Variant(f"tune/{name}/{'_'.join(o)}", (*UPDATES[name], *o, *extra)) for o in STRENGTHS[name]]

    def variants(self, chosen: Mapping[str, tuple[str, ...]]) -> list[Variant]:
        """The grid: every update in the masked view, two in the others, and those that begin at the 1-hop greedy."""
        grid = [
            Variant(f"{view}/{name}", (*UPDATES[name], *chosen[name], "--agent.options.view", view))
            for view in ("masked", "own", "unmasked")
            for name in UPDATES
            if view == "masked" or name in ("pmd", "ppo_clip")
        ]
        begun = (*UPDATES["pmd"], *chosen["pmd"], *PRIOR)
        grid.append(Variant("masked/pmd+prior", begun))
        grid.append(Variant("masked/pmd+prior+forks", (*begun, *FORKED)))
        return grid

    def grid(self, variants: Iterable[Variant]) -> dict[str, list[Fractions]]:
        """By variant, for each seed, fractions by task; variants that search when judged come besides."""
        jobs = [(v, seed) for seed in range(self.seeds) for v in variants]
        waiting = [(v.name, self.pool.submit(_train_and_play, self.work, v, seed, self.common)) for v, seed in jobs]
        found: dict[str, list[Fractions]] = defaultdict(list)
        for name, future in waiting:
            found[name].append(future.result())
            print(f"{name}: {np.mean(list(found[name][-1].values())):.3f}", flush=True)
        return dict(found)

    def searched(self, variant: Variant, candidates: int) -> list[Fractions]:
        """The variant's policies with that many candidates tried at every decision."""
        futures = [
            self.pool.submit(_search, self.work, variant, seed, candidates, self.common) for seed in range(self.seeds)
        ]
        return [future.result() for future in futures]

    def hard(self) -> dict[str, Any]:
        """The hard regime: fractions along the way at 20 regular and 80 irregular, running KL, failure labels."""
        cut = ("--trainer.updates", "4", "--evaluate.every", "2") if self.quick else ()
        variants = [Variant(f"hard/{name}", (*HARD, *overrides, *cut)) for name, overrides in HARD_VARIANTS.items()]
        seeds = range(self.seeds)
        waiting = {v.name: [self.pool.submit(_train_kept, self.work, v, seed, ()) for seed in seeds] for v in variants}
        return {name: _drifted([f.result()["rows"] for f in futures]) for name, futures in waiting.items()}


def _play_kept(
    work: Path, name: str, weights: Mapping[str, np.ndarray], rule: str, forks: int, common: Sequence[str]
) -> Fractions:
    return kept(work, name, lambda: played(weights, rule, "held_out", forks, common))


def _train_kept(work: Path, variant: Variant, seed: int, common: Sequence[str]) -> dict[str, Any]:
    return kept(work, f"train_{variant.name}_{seed}", lambda: trained(variant, seed, common))


def _train_and_play(work: Path, variant: Variant, seed: int, common: Sequence[str]) -> Fractions:
    weights = weights_of(_train_kept(work, variant, seed, common))
    return _play_kept(work, f"play_{variant.name}_{seed}", weights, "", 0, common)


def _search(work: Path, variant: Variant, seed: int, candidates: int, common: Sequence[str]) -> Fractions:
    weights = weights_of(_train_kept(work, variant, seed, common))
    return _play_kept(work, f"search{candidates}_{variant.name}_{seed}", weights, "", candidates, common)


def _largest(work: Path, name: str, variant: Variant | None, seed: int, rule: str, common: Sequence[str]) -> Fractions:
    weights = weights_of(_train_kept(work, variant, seed, common)) if variant else {}
    return kept(work, f"largest_{name}_{seed}", lambda: played(weights, rule, "held_out", 0, common, TRANSFER))


def _drifted(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Of the seeds of one variant."""
    ways = {
        cell: np.array([_way(rows, cell) for rows in runs]) for cell in ("charging/regular/20", "charging/irregular/80")
    }
    labels = []
    for rows in runs:
        row = [r for r in rows if r.get("validation/fraction_greedy") is not None]
        whole = [r["validation/fraction_greedy"] for r in row]
        last = row[-1]
        signs = Signs(whole[-1], last["validation/passes"], last["validation/unserved"], max(whole))
        labels.append(str(failure(signs)))
    return {
        "fraction": {cell: [vars(bootstrap(column)) for column in way.T] for cell, way in ways.items()},
        "worst_fall": {cell: float((way.max(1) - way[:, -1]).max()) for cell, way in ways.items()},
        "running_kl": {
            agent: vars(bootstrap([rows[-1][f"drift/{agent}/kl_total"] for rows in runs]))
            for agent in ("demand", "supply")
        },
        "failures": labels,
    }


def _score(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(rows[-1]["validation/fraction_greedy"])


def _way(rows: Sequence[Mapping[str, Any]], cell: str) -> list[float]:
    name = f"validation/fraction_greedy/{cell}"
    return [row[name] for row in rows if row.get(name) is not None]


def table_of(runs: Sequence[Fractions], cell: str) -> np.ndarray:
    """(seeds, instances) of one cell, instances in the order of their names."""
    tasks = sorted(task for task in runs[0] if parse_name(task).cell == cell)
    return np.array([[run[task] for task in tasks] for run in runs])


def summed(found: Mapping[str, Sequence[Fractions]]) -> dict[str, Any]:
    """Fractions and paired gains over the two greedies, by variant and cell, as [low, estimate, high]."""
    cells = sorted({parse_name(task).cell for runs in found.values() for task in runs[0]}, key=cell_order)
    result: dict[str, Any] = {"fraction": {}, "by_size": {}, "gain": {"one_hop_greedy": {}, "coupled_greedy": {}}}
    for name, runs in found.items():
        tables = {cell: table_of(runs, cell) for cell in cells}
        result["fraction"][name] = {cell: _triple(crossed_bootstrap(table)) for cell, table in tables.items()}
        result["by_size"][name] = {
            size: _triple(crossed_bootstrap(np.concatenate([tables[c] for c in cells if c.endswith(f"/{size}")], 1)))
            for size in dict.fromkeys(cell.rsplit("/", 1)[1] for cell in cells)
        }
        for rival, gains in result["gain"].items():
            if name != rival:
                differences = {cell: table - table_of(found[rival], cell) for cell, table in tables.items()}
                gains[name] = {c: _triple(crossed_bootstrap(d, statistic=mean)) for c, d in differences.items()}
    return result


def _triple(interval: Interval) -> list[float]:
    return [round(v, 4) for v in (interval.low, interval.estimate, interval.high)]


def show(result: Mapping[str, Any]) -> None:
    """Interquartile means, a line per variant, a column per cell; then over all cells of a size, with intervals."""
    cells = list(next(iter(result["fraction"].values())))
    print(f"{'':26}" + " ".join(f"{c[0]}{c.split('/')[1][0]}{c.split('/')[2]:>3}" for c in cells))
    for name, row in result["fraction"].items():
        print(f"{name:26}" + " ".join(f"{row[c][1]:5.2f}" for c in cells))
    for name, sizes in result["by_size"].items():
        print(
            f"{name:26}" + "  ".join(f"n = {n}: {m:.3f} [{low:.3f}, {high:.3f}]" for n, (low, m, high) in sizes.items())
        )


def main() -> None:
    options = parse()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        study = Study(options.work, pool, options.seeds, options.quick)
        found: dict[str, list[Fractions]] = {rule: [f] for rule, f in study.heuristics().items()}
        chosen = study.chosen()
        print(f"chosen: {chosen}", flush=True)
        variants = study.variants(chosen)
        found |= study.grid(variants)
        best = next(v for v in variants if v.name == SEARCHED)
        hard = study.hard() if "hard" in options.parts else {}
        if "search" in options.parts:
            found[f"{best.name}@{CANDIDATES}"] = study.searched(best, CANDIDATES)
        result = summed(found) | {"chosen": chosen, "seeds": options.seeds, "hard": hard}
        show(result)
        if "largest" in options.parts and not options.quick:
            result["largest"] = largest(study, [v for v in variants if v.name in ("masked/pmd", SEARCHED)])
    print(json.dumps(result))


def largest(study: Study, variants: Sequence[Variant]) -> dict[str, list[float]]:
    """Zero-shot at 320 sites: mean over games and seeds, [low, estimate, high]."""
    runs: dict[str, list[Any]] = {
        v.name: [study.pool.submit(_largest, study.work, v.name, v, s, "", study.common) for s in range(study.seeds)]
        for v in variants
    }
    for rule in ("one_hop_greedy", "coupled_greedy"):
        runs[rule] = [study.pool.submit(_largest, study.work, rule, None, 0, rule, study.common)]
    tables = {name: np.array([[f.result()[t] for t in TRANSFER] for f in futures]) for name, futures in runs.items()}
    return {name: _triple(crossed_bootstrap(table, statistic=mean)) for name, table in tables.items()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few updates, small games, one seed: minutes")
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, default=None, help="folder for what is done; default: a temporary one")
    parser.add_argument("--parts", nargs="*", default=["hard", "search", "largest"], help="beside the grid")
    options = parser.parse_args()
    options.seeds = options.seeds or (1 if options.quick else 5)
    options.work = options.work or Path(tempfile.mkdtemp(prefix="coupling-"))
    options.work.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
