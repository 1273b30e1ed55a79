"""Training steps (environment + policy + update) per CPU-second: batched games, one game at a time, RLlib's PPO.

All three play the same irregular games of one domain with the same network (default widths) and four epochs over 64
games an iteration. `loop` is our own code at size one: each game is played alone and learned from alone. RLlib runs in
one process without remote samplers, on our environment, minibatches of 16 games. `steps` are game rounds, in which both
operators move. Also the memory that one game of 1,000 sites takes to play and to learn from. The last line is JSON.

    python scripts/bench/graph_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from refork.cluster.collector import open_collector
from refork.cluster.family import open_family
from refork.cluster.training import build_trainer
from refork.replay.player import GroupRequest
from refork.scripts.job import read_job

GAMES, HORIZON, EPOCHS = 64, 20, 4
LARGE = 1000


def ours(size: int, batch: int) -> Callable[[], None]:
    """One iteration of the common parts, `batch` games in step and in a part of a minibatch."""
    overrides = {
        "env.options.sizes": f"[{size}]",
        "env.options.domains": '["charging"]',
        "env.options.couplings": '["irregular"]',
        "env.options.batch": str(batch),
        "trainer.minibatch": str(min(16, batch)),
        "trainer.epochs": str(EPOCHS),
        "trainer.warm_updates": "0",
        "trainer.critic_updates": "0",
    }
    job = read_job("graph_grid", [token for key, value in overrides.items() for token in (f"--{key}", value)])
    family = open_family(job)
    trainer, collector = build_trainer(job, family.feature_names), open_collector(family.spec)
    requests = [GroupRequest(task, 0, 0, 0, 1) for task in family.names("train")[:GAMES]]
    updates = iter(range(job.trainer.updates))

    def iterate() -> None:
        update = next(updates)
        trainer.update(update, collector.collect(requests, trainer.weights(), update))

    return iterate


def rllib(size: int) -> Callable[[], None]:
    """One iteration of RLlib's PPO."""
    from refork.cluster.rllib import game_config

    tasks = [f"charging-irregular-n{size}-{i}" for i in range(GAMES)]
    algorithm = game_config("ppo", tasks, games=GAMES, epochs=EPOCHS).build_algo()

    def iterate() -> None:
        algorithm.train()

    return iterate


def steps_per_cpu_s(iterate: Callable[[], None], iterations: int) -> float:
    """Game rounds per CPU-second of this process, after one iteration of warming up."""
    iterate()
    begun = time.process_time()
    for _ in range(iterations):
        iterate()
    return iterations * GAMES * HORIZON / (time.process_time() - begun)


def measure(size: int, iterations: int) -> dict[str, float]:
    found = {
        "refork": steps_per_cpu_s(ours(size, GAMES), iterations),
        "loop": steps_per_cpu_s(ours(size, 1), max(1, iterations // 3)),
        "rllib": steps_per_cpu_s(rllib(size), max(1, iterations // 3)),
    }
    print(f"n = {size}: " + ", ".join(f"{name} {value:.0f}" for name, value in found.items()), flush=True)
    return found


def large_game() -> None:
    """In a process of its own: one game of LARGE sites played, then learned from; prints MiB at each stage, and s."""
    torch.set_num_threads(1)
    stages = [_peak_mib()]
    job = read_job(
        "graph_grid",
        ["--env.options.sizes", f"[{LARGE}]", "--trainer.warm_updates", "0", "--trainer.critic_updates", "0"],
    )
    family = open_family(job)
    trainer, collector = build_trainer(job, family.feature_names), open_collector(family.spec)
    task = f"charging-irregular-n{LARGE}-0"
    family.spec.source.instance(task)  # type: ignore[attr-defined]
    begun = time.process_time()
    played = collector.collect([GroupRequest(task, 0, 0, 0, 1)], trainer.weights(), 0)
    stages.append(_peak_mib())
    trainer.update(0, played)
    print(json.dumps({"mib": [*stages, _peak_mib()], "cpu_s": time.process_time() - begun}))


def _peak_mib() -> float:
    """Of this process since it began (getrusage would tell that of its parent)."""
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one iteration each")
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        return large_game()
    from refork.cluster.local_ray import LocalRay
    from refork.cluster.rllib import results_in

    torch.set_num_threads(1)
    results_in(Path(tempfile.mkdtemp(prefix="graph-speed-")))
    cluster = LocalRay.start(1)
    try:
        speeds = {str(n): measure(n, 1 if options.quick else 6) for n in (10, 80)}
    finally:
        cluster.stop()
    large = subprocess.run([sys.executable, __file__, "--large"], capture_output=True, text=True, check=True)
    result: dict[str, Any] = {
        "steps_per_cpu_s": {n: {name: round(v, 1) for name, v in found.items()} for n, found in speeds.items()},
        "rllib_ratio": {n: round(found["refork"] / found["rllib"], 2) for n, found in speeds.items()},
        "loop_ratio": {n: round(found["refork"] / found["loop"], 2) for n, found in speeds.items()},
        "n1000": json.loads(large.stdout.splitlines()[-1]),
    }
    print(json.dumps(result))
    return None


if __name__ == "__main__":
    main()
