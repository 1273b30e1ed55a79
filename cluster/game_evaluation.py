"""Judges the policy in training on the validation games, apart from every random stream of the training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from refork.cluster.collector import GroupCollector
from refork.cluster.evaluation import requests
from refork.cluster.game_judgement import GameResult, judge_games
from refork.replay.games import PlayedGames


@dataclass
class GameEvaluator:
    """`trainers/loop.py: Evaluator`."""

    collector: GroupCollector
    tasks: Sequence[str]
    seed: int
    attempts: int
    read: Callable[[PlayedGames], list[GameResult]]

    def evaluate(self, weights: Mapping[str, np.ndarray], version: int) -> dict[str, float]:
        """`fraction` (sampled) and `fraction_greedy` of the bound, `passes` and `unserved` of the greedy policy, and
        `fraction_greedy/CELL`."""
        metrics: dict[str, float] = {}
        for name, attempts in (("fraction", self.attempts), ("fraction_greedy", 1)):
            asked = requests(self.tasks, self.seed, attempts, name == "fraction_greedy")
            played = self.collector.collect(asked, weights, version, record=False)
            judged = judge_games("trained", name, played, self.read, {})
            if judged.overall is None:
                continue
            metrics[name] = judged.overall.fraction.estimate
            if name == "fraction_greedy":
                metrics |= {"passes": judged.overall.passes, "unserved": judged.overall.unserved}
                metrics |= {f"{name}/{cell}": own.fraction.estimate for cell, own in judged.by_cell.items()}
        return metrics


def best_before(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Best greedy fraction in the rows of a run's metrics, by cell and over all under ''."""
    prefix, best = "validation/fraction_greedy", dict[str, float]()
    for row in history:
        for name, value in row.items():
            if name.startswith(prefix) and value is not None:
                cell = name.removeprefix(prefix).removeprefix("/")
                best[cell] = max(best.get(cell, value), value)
    return best
