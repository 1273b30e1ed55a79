"""Plays a policy on tasks it is judged on, sampled and greedy, apart from every random stream of the training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from refork.cluster.collector import GroupCollector
from refork.replay.counterfactual import GroupRequest
from refork.replay.seeding import generator, task_seed
from refork.replay.trajectory import TaskExperience


def requests(tasks: Sequence[str], seed: int, attempts: int, greedy: bool = False) -> list[GroupRequest]:
    """One group per task; the streams depend on `seed` and the task alone, never on the training."""
    own = int(generator(seed, "evaluation").integers(2**31))
    return [
        GroupRequest(task, 0, own, task_seed(seed, task), 1 if greedy else attempts, greedy=greedy) for task in tasks
    ]


def spread_over_packages(tasks: Sequence[str], package: Callable[[str], str], count: int) -> list[str]:
    """`count` of the tasks, evenly over packages and within each evenly over its sorted tasks; 0: all. Sorted."""
    if count == 0 or count >= len(tasks):
        return sorted(tasks)
    by_package: dict[str, list[str]] = defaultdict(list)
    for task in sorted(tasks):
        by_package[package(task)].append(task)
    quotas = dict.fromkeys(by_package, 0)
    while sum(quotas.values()) < count:
        open_ones = [name for name, own in by_package.items() if quotas[name] < len(own)]
        quotas[min(open_ones, key=lambda name: quotas[name])] += 1
    chosen: list[str] = []
    for name, own in by_package.items():
        chosen += [own[round(place)] for place in np.linspace(0, len(own) - 1, quotas[name])]
    return sorted(chosen)


def resolved(group: TaskExperience) -> list[bool]:
    """Judged attempts of a group, true where resolved; what was not judged is left out."""
    return [t.value >= 1.0 for t in group.mains if t.value is not None]


@dataclass
class PolicyEvaluator:
    """Judges the policy in training on the validation tasks (`trainers/loop.py: Evaluator`)."""

    collector: GroupCollector
    tasks: Sequence[str]
    seed: int
    attempts: int

    def evaluate(self, weights: Mapping[str, np.ndarray], version: int) -> dict[str, float]:
        """`resolved` (sampled) and `resolved_greedy`, each the mean over tasks; `unjudged`: attempts left out."""
        asked = {"resolved": self.attempts, "resolved_greedy": 1}
        metrics: dict[str, float] = {"unjudged": 0.0}
        for name, attempts in asked.items():
            groups = self.collector.collect(
                requests(self.tasks, self.seed, attempts, name == "resolved_greedy"), weights, version, record=False
            )
            shares = [float(np.mean(found)) for group in groups if (found := resolved(group))]
            metrics["unjudged"] += sum(group.unjudged for group in groups)
            if shares:
                metrics[name] = float(np.mean(shares))
        return metrics
