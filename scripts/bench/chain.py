"""CRR against outcome-only baselines on the chain, with the project's own trainers; exact success, equal steps.

Every step is counted, branches included. All methods share one setting: 8 tasks per update, groups of 3, learning rate
0.2 (0.1 was tried for both kinds, 0.3 for CRR, on other seeds; group sizes and tasks per update were not). The last
line is one JSON object: for each method the interquartile mean over seeds, with a 95 % bootstrap interval, of the
success at each mark (a run's own success goes up and down from update to update, so it is the mean over `POINTS`
moments of the last tenth of the steps before the mark).

    python scripts/bench/chain.py [--seeds 6] [--processes 2] [--marks 80000 160000 240000 400000]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from refork.agents.registry import make_policy
from refork.cluster.collector import LocalCollector
from refork.cluster.rollout import RolloutSpec
from refork.envs.chain import START, ChainEnv, ChainTask, exact_success, make_tasks
from refork.trainers.config import JobConfig
from refork.trainers.loop import Loop, Weights
from refork.trainers.make import make_trainer
from refork.trainers.sampler import TaskSampler
from refork.trainers.stats import bootstrap, iqm

SHARED = {"learning_rate": 0.2, "tasks_per_update": 8, "group": 3, "updates": 1_000_000}
PLAIN = {"which": "all", "outcome": "none", "scale": False, "mirror": "none", "branch_steps": False, "adapt": False}
METHODS: dict[str, dict[str, Any]] = {
    "crr": {"kind": "crr"},
    "crr_fixed": {"kind": "crr", "adapt": False},
    "crr_weighted": {"kind": "crr", "selection": "weighted"},
    "crr_uniform": {"kind": "crr", "rule": "uniform"},
    "crr_plain": {"kind": "crr", **PLAIN, "forks": 1.0},
    "grpo": {"kind": "grpo", "estimator": "grpo"},
    "rloo": {"kind": "grpo", "estimator": "rloo"},
}
"""What is compared: the tuned form, its variants, the plain form of the source, the baselines."""

POINTS = 5
TRAIN, JUDGED = range(4096), range(10_000, 12_000)


class _Nothing:
    """Tracks and saves nothing: only the success counts here."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def chain_job(settings: Mapping[str, Any], seed: int) -> JobConfig:
    """The job of one run: a linear policy that starts where the chain says."""
    prior = dict(zip(ChainEnv.feature_names, START.tolist(), strict=True))
    return JobConfig.model_validate(
        {
            "seed": seed,
            "env": {"id": "refork/Chain-v0"},
            "agent": {"options": {"hidden": [], "prior": prior}},
            "trainer": {**SHARED, **settings},
        }
    )


def success(weights: Weights, tasks: ChainTask) -> float:
    """Exact success of a policy on `tasks`."""
    logits = make_policy("edit_scorer", weights).logits(tasks.features)
    exp = np.exp(logits - logits.max(-1, keepdims=True))
    return exact_success(exp / exp.sum(-1, keepdims=True), tasks)


def chain_loop(settings: Mapping[str, Any], seed: int) -> Loop:
    """That run, in this process."""
    job, nothing = chain_job(settings, seed), _Nothing()
    return Loop(
        job,
        make_trainer(job, ChainEnv.feature_names),
        TaskSampler([f"chain-{i}" for i in TRAIN], seed),
        LocalCollector(RolloutSpec(job.env, job.agent.kind)),
        nothing,
        nothing,
    )


def run(settings: Mapping[str, Any], marks: Sequence[int], seed: int) -> list[float]:
    """Success about when the steps spent pass each of `marks` (ascending)."""
    torch.set_num_threads(1)
    loop = chain_loop(settings, seed)
    judged, found = make_tasks([f"chain-{i}" for i in JUDGED]), []
    for mark in marks:
        seen = []
        for moment in np.linspace(0.9 * mark, mark, POINTS):
            while loop.totals["steps"] < moment:
                loop.step()
            seen.append(success(loop.trainer.weights(), judged))
        found.append(float(np.mean(seen)))
    return found


def compare(methods: Sequence[str], marks: Sequence[int], seeds: Sequence[int], processes: int) -> dict[str, Any]:
    """Runs all and sums up; prints a line per method as it is done."""
    result: dict[str, Any] = {"marks": list(marks), "seeds": len(seeds), "methods": {}}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for method in methods:
            begun = time.perf_counter()
            table = np.array(list(pool.map(partial(run, METHODS[method], tuple(marks)), seeds)))
            result["methods"][method] = [vars(bootstrap(column, statistic=iqm)) for column in table.T]
            line = "  ".join(f"{row['estimate']:.3f}" for row in result["methods"][method])
            print(f"{method:14s} {line}   ({time.perf_counter() - begun:.0f} s)", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare CRR with outcome-only baselines on the chain.")
    parser.add_argument("--methods", nargs="+", default=["crr", "grpo", "rloo"], choices=sorted(METHODS))
    parser.add_argument("--marks", nargs="+", type=int, default=[80_000, 160_000, 240_000, 400_000])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    print(json.dumps(compare(given.methods, sorted(given.marks), range(given.seeds), given.processes)))


if __name__ == "__main__":
    main()
