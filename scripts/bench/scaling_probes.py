"""What one piece of a run costs, taken apart: a call to an actor, a byte, a save, a file of trajectories.

The numbers that bench/cluster_model.py is made from, measured with the parts that a run uses.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.actors import RayCollector, _Work
from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.collector import LocalCollector
from refork.cluster.local_ray import LocalRay, ray
from refork.cluster.resources import Need
from refork.cluster.running_ray import OwnRay
from refork.cluster.training import prepare
from refork.replay.counterfactual import lost_group
from refork.replay.player import GroupRequest
from refork.replay.trajectory import TaskExperience
from refork.scripts.bench.scaling_runs import Work
from refork.scripts.job import read_job

REPEATS = 5


@dataclass(frozen=True)
class Echo:
    """Players that play nothing and send so many bytes."""

    size: int = 0

    def player(self) -> type[EchoPlayer]:
        return EchoPlayer

    def units(self, requests: Sequence[GroupRequest]) -> Sequence[GroupRequest]:
        return requests

    def lost(self, unit: GroupRequest, reason: str) -> TaskExperience:
        return lost_group(unit, reason)


class EchoPlayer:
    def __init__(self, spec: Echo) -> None:
        self._answer = np.zeros(spec.size, np.uint8)

    def play(
        self, unit: Any, weights: Mapping[str, np.ndarray], version: int, how: Any = None, baseline: str = ""
    ) -> np.ndarray:
        return self._answer

    def pid(self) -> int:
        return 0

    def nap(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        pass


def call_costs(calls: int, megabytes: int = 8) -> dict[str, float]:
    """Seconds of the driver per call and for each byte that comes back, and how waiting grows with the calls that are
    out."""
    cluster = LocalRay.start(3)
    try:
        empty, large = _echo_seconds(Echo(), calls), _echo_seconds(Echo(megabytes << 20), 20)
        few, many = (_wait_seconds(out) for out in (10, 1000))
    finally:
        cluster.stop()
    return {
        "call_s": empty,
        "wait_s_per_call_out": max(0.0, many - few) / 990,
        "transfer_s_per_byte": max(0.0, large - empty) / (megabytes << 20),
    }


def _echo_seconds(spec: Echo, calls: int) -> float:
    """Per call, one after the other on one actor: what a run's driver spends for each unit."""
    asked = [GroupRequest(f"echo-{i}", 0, 0, 0) for i in range(calls)]
    collector = RayCollector(spec, Need(1), OwnRay())
    collector.start_actors()
    seconds = _best(lambda: collector.collect(asked, {}, 0), REPEATS)
    collector.close()
    return seconds / calls


def _wait_seconds(out: int) -> float:
    """Of one look of a collector at `out` calls of which one has ended."""
    collector = RayCollector(Echo(), Need(1), OwnRay())
    actor: Any = ray.remote(EchoPlayer).remote(Echo())
    work = _Work(0, GroupRequest("nap", 0, 0, 0), since=time.monotonic())
    running = {actor.nap.remote(600.0): (actor, work) for _ in range(out - 1)} | {ray.put(0): (actor, work)}
    seconds = _best(lambda: collector._finished(running), 10 * REPEATS)
    ray.kill(actor)
    return seconds


def update_costs(work: Work, most: int = 8) -> dict[str, float]:
    """What one update's experience, of at most so many groups, is to move and to keep: bytes as they are serialised,
    seconds as written."""
    job = read_job(work.job[0], work.job[1:])
    parts = prepare(job)
    config, weights = job.trainer, parts.trainer.weights()
    drawn = parts.sampler.draw(min(most, config.tasks_per_update))
    asked = [GroupRequest(task, episode, job.seed, 0, config.group) for task, episode in drawn]
    collector = LocalCollector(parts.family.spec)
    try:
        played = collector.collect(asked, weights, 0, parts.trainer.fork_config(0))
    finally:
        collector.close()
        parts.family.close()
    episodes = sum(len(group.trajectories) for group in played)
    with tempfile.TemporaryDirectory() as name:
        store, kept = parts.family.store(Path(name) / "t"), CheckpointStore(Path(name) / "c")
        write_s = _timed(lambda: store.write(0, played))
        stored = sum(path.stat().st_size for path in store.folder.iterdir())
        save_s = _timed(lambda: kept.save(1, {"trainer": parts.trainer.state_dict()}))
    return {
        "weights_bytes": serialised(dict(weights)),
        "ask_bytes": sum(map(serialised, asked)) / len(asked),
        "answer_bytes": sum(map(serialised, played)) / len(played),
        "stored_bytes_per_episode": stored / episodes,
        "store_s_per_episode": write_s / episodes,
        "save_s": save_s,
    }


def serialised(what: Any) -> int:
    """Bytes on the way: what Ray pickles, and the arrays that it sends beside."""
    apart: list[pickle.PickleBuffer] = []
    inside = ray.cloudpickle.dumps(what, protocol=5, buffer_callback=apart.append)
    return len(inside) + sum(buffer.raw().nbytes for buffer in apart)


def _best(act: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest: what else the machine does comes on top."""
    return min(_timed(act) for _ in range(repeats))


def _timed(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
