"""Rules to play by, from passing to a central lookahead: what any learned policy has to be held against."""

from __future__ import annotations

from collections.abc import Callable

from refork.envs.graph_game.joint_rules import CoupledGreedy, LookaheadGreedy, MyopicBestResponse
from refork.envs.graph_game.local_rules import OneHopGreedy
from refork.envs.graph_game.own_rules import Heuristic, OwnGreedy, Pass, Random

__all__ = ["HEURISTICS", "Heuristic"]

HEURISTICS: dict[str, Callable[[int], Heuristic]] = {
    "pass": lambda seed: Pass(),
    "random": Random,
    "own_greedy": lambda seed: OwnGreedy(),
    "one_hop_greedy": lambda seed: OneHopGreedy(),
    "coupled_greedy": lambda seed: CoupledGreedy(),
    "lookahead_greedy": lambda seed: LookaheadGreedy(),
    "myopic_best_response": lambda seed: MyopicBestResponse(),
}
"""By name, made from a seed; only `random` uses it."""
