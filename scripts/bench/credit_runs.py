"""Trains one estimator on the chain up to a budget; notes what it cost to get where. What is done is kept on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.envs.chain import make_tasks
from refork.scripts.bench.chain import JUDGED, chain_loop, success
from refork.scripts.bench.kept import is_kept, kept
from refork.scripts.bench.studies import Settings

VALIDATION = range(8_000, 9_000)
"""Tasks that settings are chosen on; neither trained on nor judged."""
POINTS = 100
"""Moments at which a run is looked at."""
WINDOW = 5
"""Moments that a success is the mean over: a run's own goes up and down from update to update."""
COSTS = ("steps", "steps_executed", "trajectories", "seconds")
"""What is counted: environment steps asked for and really executed, every branch a trajectory, CPU seconds."""


def curve(settings: Settings, seed: int, budget: int, tasks: range) -> dict[str, list[float]]:
    """Exact success on `tasks` and the costs so far, at `POINTS` moments up to `budget` steps asked for."""
    torch.set_num_threads(1)
    loop, judged = chain_loop(settings, seed), make_tasks([f"chain-{i}" for i in tasks])
    found: dict[str, list[float]] = {name: [] for name in (*COSTS, "success")}
    spent = 0.0
    for moment in np.linspace(budget / POINTS, budget, POINTS):
        begun = time.process_time()
        while loop.totals["steps"] < moment:
            loop.step()
        spent += time.process_time() - begun
        for name in COSTS[:-1]:
            found[name].append(float(loop.totals[name]))
        found["seconds"].append(spent)
        found["success"].append(success(loop.trainer.weights(), judged))
    return found


def smooth(values: Sequence[float]) -> np.ndarray:
    """(POINTS,): means over the last `WINDOW` moments, fewer at the beginning."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(0, ends - WINDOW)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def cost_to_reach(found: dict[str, list[float]], level: float, cost: str) -> float | None:
    """What had been spent when success first was at `level`; None when it never was."""
    reached = np.flatnonzero(smooth(found["success"]) >= level)
    return found[cost][reached[0]] if len(reached) else None


def tuned(work: Path, name: str, tried: Sequence[Settings], seeds: int, budget: int) -> dict[str, Any]:
    """The setting of the greatest final success, mean over seeds that are not judged, on validation tasks."""

    def tune() -> dict[str, Any]:
        scores = [
            float(np.mean([smooth(curve(s, 1000 + k, budget, VALIDATION)["success"])[-1] for k in range(seeds)]))
            for s in tried
        ]
        return {"settings": dict(tried[int(np.argmax(scores))]), "scores": scores}

    return dict(kept(work, f"{name}-tuned", tune))


def judged_run(work: Path, name: str, settings: Settings, seed: int, budget: int) -> dict[str, list[float]]:
    """The curve of one seed on tasks that nothing was chosen on."""
    return dict(kept(work, f"{name}-{seed}", lambda: curve(settings, seed, budget, JUDGED)))


def is_judged(work: Path, name: str, seeds: int) -> bool:
    """All seeds of an estimator are done."""
    return all(is_kept(work, f"{name}-{seed}") for seed in range(seeds))
