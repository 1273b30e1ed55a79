"""The model against runs that were made: the rate it says, the rate that was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from refork.scripts.bench.cluster_costs import Numbers, Run, costs_of, run_at
from refork.scripts.bench.cluster_sim import Costs, Layout, simulate


@dataclass(frozen=True)
class Compared:
    """One run, in episodes per second."""

    label: str
    predicted: float
    measured: float
    fitted: bool
    """Whether the costs are from this very run."""

    @property
    def error(self) -> float:
        """Relative; above 0 when the model promises too much."""
        return self.predicted / self.measured - 1


def validate(runs: Sequence[Run], numbers: Numbers, cores: int) -> list[Compared]:
    """Every run, predicted from the groups of the run with 1 actor. All ran on one host: what has more processes at
    work than it has cores goes slower by as much."""
    base = run_at(runs, actors=1)
    assert base is not None
    costs = replace(costs_of(numbers, base.groups), evaluate_every=0, save_every=0, node_life=float("inf"))
    found = []
    for run in runs:
        layout, own = _layout(run), _costs(run, costs)
        slower = max(1.0, layout.actors / cores)
        told = simulate(layout, own, lambda u, g, slower=slower: slower * base.units_s[u][g])  # type: ignore[misc]
        rate = sum(base.episodes) / told.seconds
        found.append(Compared(_label(run.place), rate, run.rate, run is base))
    return found


def _layout(run: Run) -> Layout:
    place = run.place
    nodes = place["nodes"] or 1
    actors = (place["actors"] or place["learners"]) // nodes
    return Layout(nodes, actors, place["learners"], run.groups, len(run.units_s), place["staleness"])


def _costs(run: Run, costs: Costs) -> Costs:
    """Without actors nothing is called: the learners play."""
    return costs if run.place["actors"] else replace(costs, call=0.0, wait_per_call_out=0.0, answer=0.0, weights=0.0)


def _label(place: Mapping[str, int]) -> str:
    named = [f"{value} {name}" for name, value in place.items() if value and (name, value) != ("learners", 1)]
    return ", ".join(named) or "1 learner"


def mean_error(compared: Sequence[Compared]) -> float | None:
    """Mean absolute relative error of the runs that nothing was fitted to."""
    errors = [abs(one.error) for one in compared if not one.fitted]
    return sum(errors) / len(errors) if errors else None
