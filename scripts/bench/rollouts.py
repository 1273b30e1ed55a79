"""Episodes per core-second of the repair menu: cache cold, warm and off, 1 and 2 actors. Last line: one JSON object.

The policy is the untrained one; every setting plays the same groups. Ray's start and the first import of the tasks'
files into the layer store are not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from refork.cluster.actors import RayCollector
from refork.cluster.evaluation import requests, spread_over_packages
from refork.cluster.local_ray import LocalRay
from refork.cluster.resources import Need, cores
from refork.cluster.rollout import RolloutSpec
from refork.cluster.tasks import task_source
from refork.cluster.training import build_trainer
from refork.envs.home import home
from refork.envs.swe.taskset import default_folder
from refork.scripts.job import read_job
from refork.trainers.config import EnvConfig, JobConfig
from refork.trainers.loop import Weights


def measure(job: JobConfig, weights: Weights, tasks: list[str], attempts: int, actors: int, cache: str) -> float:
    """Episodes per core-second with `cache` 'cold', 'warm' or 'off'."""
    env = job.env.model_copy(update={"cache": cache != "off"})
    asked = requests(tasks, job.seed, attempts)
    if cache == "cold":
        shutil.rmtree(home() / "dag", ignore_errors=True)
    collector = RayCollector(RolloutSpec(env, job.agent.kind), Need(actors), LocalRay.start(actors))
    try:
        if cache == "warm":
            collector.collect(asked, weights, 0)
        collector.start_actors()
        begun = time.perf_counter()
        played = collector.collect(asked, weights, 0)
        seconds = time.perf_counter() - begun
    finally:
        collector.close()
    unjudged = sum(group.unjudged for group in played)
    if unjudged:
        raise SystemExit(f"{unjudged} episodes were not judged; the rate would say nothing")
    return len(tasks) * attempts / (seconds * actors)


def main() -> None:
    """Print one line per setting and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, default=default_folder(), help="a built task set")
    parser.add_argument("--count", type=int, default=12, help="tasks played")
    parser.add_argument("--attempts", type=int, default=4, help="episodes per task")
    parser.add_argument("--short", action="store_true", help="a few seconds: 2 tasks, 2 episodes each")
    given = parser.parse_args()
    count, attempts = (2, 2) if given.short else (given.count, given.attempts)
    with tempfile.TemporaryDirectory() as place:
        os.environ["REFORK_HOME"] = place
        job = read_job("repair_small")
        job = job.model_copy(update={"env": EnvConfig(id=job.env.id, tasks=given.tasks)})
        source = task_source(job.env)
        tasks = spread_over_packages(source.names("train"), source.package, count)
        weights = build_trainer(job, source.feature_names).weights()
        measure(job, weights, tasks, 1, 1, "off")
        result: dict[str, float] = {}
        for actors in range(1, min(2, cores()) + 1):
            for cache in ("off", "cold", "warm"):
                name = f"{cache}_{actors}_actors_per_core_s"
                result[name] = round(measure(job, weights, tasks, attempts, actors, cache), 3)
                print(f"cache {cache}, {actors} actors: {result[name]} episodes per core-second", flush=True)
        print(json.dumps({"episodes": len(tasks) * attempts, **result}))


if __name__ == "__main__":
    main()
