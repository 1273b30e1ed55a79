"""Gradient steps per CPU-second from logs: ours against d3rlpy 2.8.1 and against the matrix products alone.

All on one thread, in turns, best of the rounds: a log of 47 features and 25 actions, two hidden layers of 256, hard
targets every 8,000 steps. d3rlpy pins another Gymnasium, so it runs in an environment of its own, made on the first run
under `refork`'s home folder (`peers/`). The limit is the products of one plain step: three forward passes (Q of the
state, Q of the next and its target) and a backward pass. It counts nothing else, and our steps skip one of the three:
`limit_share_own` is against the products that they really do. The last line is JSON.

    python scripts/bench/offline_speed.py [--quick] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.agents.q_networks import LogShape
from refork.envs.home import home
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.config import JobConfig
from refork.trainers.make import make_trainer

PEER = ("d3rlpy==2.8.1", "torch==2.13.0")
FEATURES, ACTIONS, WIDTH = 47, 25, 256
EPISODES, LENGTH = 2500, 13
STEPS = {256: 100, 32: 300}
"""Gradient steps of one measurement, by batch."""
SEEDS = 5


def made_log() -> Transitions:
    """Random numbers: only their shapes matter here."""
    rng, count = np.random.default_rng(0), EPISODES * LENGTH
    ended = np.arange(count) % LENGTH == LENGTH - 1
    return Transitions(
        LogSpec("", ObservationSpec("vector", FEATURES), ActionSpec("discrete", (ACTIONS,)), "none"),
        observations=rng.normal(size=(count + EPISODES, FEATURES)).astype(np.float32),
        actions=rng.integers(ACTIONS, size=(count, 1)),
        rewards=rng.normal(size=count).astype(np.float32),
        terminated=ended,
        truncated=np.zeros(count, bool),
        starts=np.arange(EPISODES + 1) * LENGTH,
        patients=np.arange(EPISODES),
        behaviour=np.full(count, np.nan, np.float32),
        dt=np.ones(count, np.float32),
    )


def ours(log: Transitions, kind: str, batch: int, seeds: int = 1) -> Callable[[], float]:
    """CPU-seconds a gradient step, through the trainer as a run calls it."""
    settings = {"batch": batch, "seeds": seeds, "steps_per_update": STEPS[batch], "learning_rate": 6.25e-5}
    job = JobConfig.model_validate(
        {
            "agent": {"kind": "q_networks", "options": {"hidden": [WIDTH, WIDTH]}},
            "trainer": {"kind": kind, "target_every": 8000, "target_rate": 1.0, **settings},
        }
    )
    shape = LogShape(log.spec, np.zeros(FEATURES, np.float32), np.ones(FEATURES, np.float32))
    trainer = make_trainer(job, shape)
    experience = [LoggedExperience("train", log, np.arange(len(log)), 0.0)]
    updates = iter(range(1_000_000))
    return timed(lambda: trainer.update(next(updates), experience), STEPS[batch])


def products(batch: int, forwards: int) -> Callable[[], float]:
    """CPU-seconds of the matrix products of a step, into memory that is there already."""
    sizes = list(pairwise([FEATURES, WIDTH, WIDTH, ACTIONS]))
    weights, inputs = [torch.randn(s) for s in sizes], [torch.randn(batch, i) for i, _ in sizes]
    outputs = [torch.empty(batch, o) for _, o in sizes]
    by_weight, by_input = [torch.empty(s) for s in sizes], [torch.empty(batch, i) for i, _ in sizes]

    def step(_: int) -> None:
        for _ in range(forwards):
            for x, w, y in zip(inputs, weights, outputs, strict=True):
                torch.mm(x, w, out=y)
        for x, y, g in zip(inputs, outputs, by_weight, strict=True):
            torch.mm(x.t(), y, out=g)
        for w, y, g in zip(weights[1:], outputs[1:], by_input[1:], strict=True):
            torch.mm(y, w.t(), out=g)

    return timed(lambda: list(map(step, range(STEPS[batch]))), STEPS[batch])


def timed(call: Callable[[], Any], steps: int) -> Callable[[], float]:
    def measure() -> float:
        begun = time.process_time()
        call()
        return (time.process_time() - begun) / steps

    return measure


class Peer:
    """d3rlpy in its own process."""

    def __init__(self, log: Transitions, folder: Path) -> None:
        rows = log.rows(np.arange(len(log)))
        arrays = {"observations": log.observations[rows], "actions": log.actions, "rewards": log.rewards[:, None]}
        for name, array in {**arrays, "terminals": log.terminated.astype(np.float32)}.items():
            np.save(folder / f"{name}.npy", array)
        script = Path(__file__).parent / "peers" / "d3rlpy_speed.py"
        self._process = subprocess.Popen(
            [_peer_python(), script, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        print("peer:", self._answer())

    def fit(self, kind: str, batch: int) -> Callable[[], float]:
        """CPU-seconds a gradient step of its `fit`."""

        def measure() -> float:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{kind} {batch} {STEPS[batch]}\n")
            self._process.stdin.flush()
            return float(self._answer()) / STEPS[batch]

        return measure

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


def _peer_python() -> Path:
    folder = home() / "peers" / PEER[0].replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        print(f"making {folder} with {' and '.join(PEER)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PEER], check=True)
        (folder / "whole").touch()
    return python


def in_turns(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Steps per CPU-second of each, best of the rounds after one of warming up."""
    best = dict.fromkeys(measures, 0.0)
    for turn in range(rounds + 1):
        for name, measure in measures.items():
            rate = 1 / measure()
            best[name] = max(best[name], rate) if turn else 0.0
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two rounds in place of eight")
    parser.add_argument("--out", type=Path, help="file for the result")
    options = parser.parse_args()
    rounds = 2 if options.quick else 8
    torch.set_num_threads(1)
    log = made_log()
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(log, Path(folder))
        rates = {batch: measured(log, peer, batch, rounds) for batch in STEPS}
        peer.close()
    result = json.dumps(summary(rates))
    if options.out:
        options.out.write_text(result + "\n")
    print(result)


def measured(log: Transitions, peer: Peer, batch: int, rounds: int) -> dict[str, float]:
    found = in_turns(
        {
            "ours_cql": ours(log, "cql", batch),
            "d3rlpy_cql": peer.fit("cql", batch),
            "ours_bcq": ours(log, "bcq", batch),
            "d3rlpy_bcq": peer.fit("bcq", batch),
            "products": products(batch, 3),
            "own_products": products(batch, 2),
            "ours_cql_5": ours(log, "cql", batch, SEEDS),
        },
        rounds,
    )
    print(f"batch {batch}, steps per CPU-second: " + ", ".join(f"{k} {v:.0f}" for k, v in found.items()), flush=True)
    return found


def summary(rates: dict[int, dict[str, float]]) -> dict[str, Any]:
    ratios = {
        f"{kind}_b{batch}_ratio": found[f"ours_{kind}"] / found[f"d3rlpy_{kind}"]
        for kind in ("cql", "bcq")
        for batch, found in rates.items()
    }
    large, small = rates[256], rates[32]
    shares = {
        "limit_share": large["ours_cql"] / large["products"],
        "limit_share_own": large["ours_cql"] / large["own_products"],
        "seeds5_over_1": small["ours_cql"] / small["ours_cql_5"],
        "seeds5_over_1_b256": large["ours_cql"] / large["ours_cql_5"],
        "seeds5_over_d3rlpy_1": small["d3rlpy_cql"] / small["ours_cql_5"],
    }
    per_second = {str(batch): {name: round(v, 1) for name, v in found.items()} for batch, found in rates.items()}
    return {name: round(v, 2) for name, v in {**ratios, **shares}.items()} | {"steps_per_cpu_s": per_second}


if __name__ == "__main__":
    main()
