"""A growing cluster under one design after the other, and what holds each up first; for bench/cluster_model.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from refork.scripts.bench.cluster_costs import Numbers, costs_of
from refork.scripts.bench.cluster_sim import Costs, Layout, drawn_from, simulate

NOT_PLAYING = 0.02
"""A cost whose absence gives less than this share is no bottleneck."""


@dataclass(frozen=True)
class Design:
    """What is done against waiting."""

    name: str
    groups_per_actor: int = 2
    """In an update."""
    staleness: int = 0
    nodes_per_learner: int = 0
    """0: one learner for all."""

    def layout(self, nodes: int, actors_per_node: int, updates: int) -> Layout:
        learners = max(1, nodes // self.nodes_per_learner) if self.nodes_per_learner else 1
        groups = nodes * actors_per_node * self.groups_per_actor
        return Layout(nodes, actors_per_node, learners, groups, updates, self.staleness)


DESIGNS = (
    Design("as on one host"),
    Design("+ staleness 1", staleness=1),
    Design("+ a learner per 10 nodes", staleness=1, nodes_per_learner=10),
    Design("+ 8 groups per actor", 8, 1, 10),
)

CURES: dict[str, Mapping[str, Any]] = {
    "dispatch": {"call": 0.0, "wait_per_call_out": 0.0, "answer": 0.0},
    "weight broadcast": {"weights": 0.0},
    "learner": {"update": 0.0, "update_per_group": 0.0, "exchange": 0.0},
    "gathering of experience": {"gather_per_group": 0.0},
    "storage": {"record_per_group": 0.0, "save": 0.0},
    "evaluation": {"evaluate_every": 0},
    "node failures": {"node_life": float("inf")},
}
"""What is taken away to see what it costs; stragglers are, by groups of equal length."""


@dataclass(frozen=True)
class Row:
    """One design on so many nodes."""

    design: str
    nodes: int
    actors: int
    learners: int
    episodes_per_s: float
    efficiency: float
    """Share of what as many actors would give that never wait and have no costs."""
    idle_actors: float
    idle_learners: float
    bottleneck: str
    gain: float
    """By how much more is played without it, 1 = as much again."""


def first_bottleneck(layout: Layout, costs: Costs, lengths: Sequence[float], rate: float) -> tuple[str, float]:
    """What helps the most when it is taken away, and how much."""
    gains = {
        name: simulate(layout, replace(costs, **cure), drawn_from(lengths, 0)).rate() / rate - 1
        for name, cure in CURES.items()
    }
    mean = fmean(lengths)
    gains["stragglers"] = simulate(layout, costs, lambda _u, _g: mean).rate() / rate - 1
    worst = max(gains, key=lambda name: gains[name])
    return (worst, gains[worst]) if gains[worst] >= NOT_PLAYING else ("none: the actors", gains[worst])


def row_of(design: Design, layout: Layout, numbers: Numbers, lengths: Sequence[float]) -> Row:
    costs, draw = costs_of(numbers, layout.groups), drawn_from(lengths, 0)
    told = simulate(layout, costs, draw)
    ideal = layout.actors / fmean(lengths)
    return Row(
        design.name,
        layout.nodes,
        layout.actors,
        layout.learners,
        told.rate() * numbers["episodes_per_group"].value,
        told.rate() / ideal,
        1 - told.played_s / (layout.actors * told.seconds),
        1 - told.learnt_s / told.seconds,
        *first_bottleneck(layout, costs, lengths, told.rate()),
    )
