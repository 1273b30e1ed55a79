"""Draws the state DAG that one task group played.

Time runs to the right. A node is a state; rollouts that reach the same state meet in one node. Rings mark decisions
that were gone back to, squares the ends: filled where the task was resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from refork.cluster.tasks import TaskSource
from refork.envs.forkable import StateRef
from refork.replay.trajectory import Decision, TaskExperience, Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]
Describe = Callable[[Decision], str]
RESOLVED, UNRESOLVED, UNJUDGED = "#1a7f37", "#8c959f", "#bf8700"


@dataclass
class _Drawing:
    """Nodes and edges placed so far; a state keeps the place of its first visit."""

    describe: Describe
    nodes: dict[str, Point] = field(default_factory=dict)
    edges: dict[tuple[str, int], tuple[Point, Point, str, str]] = field(default_factory=dict)
    ends: list[tuple[Point, str]] = field(default_factory=list)
    rows: int = 0

    def add(self, trajectory: Trajectory, depth: int) -> None:
        """Place what of the trajectory is new, in a row of its own."""
        row, used = float(self.rows), False
        color = _color(trajectory)
        for i, decision in enumerate(trajectory.decisions):
            start = self.nodes.setdefault(decision.state_id, (depth + i, row))
            used |= start[1] == row
            edge = (decision.state_id, decision.action)
            if edge in self.edges and color != RESOLVED:
                continue
            after = trajectory.decisions[i + 1] if i + 1 < len(trajectory.decisions) else None
            stop = (depth + i + 1.0, row)
            if after is not None:
                stop = self.nodes.setdefault(after.state_id, stop)
            elif edge in self.edges:
                stop = self.edges[edge][1]
            else:
                self.ends.append((stop, color))
            used |= stop[1] == row
            self.edges[edge] = (start, stop, color, self.describe(decision))
        self.rows += used


def _color(trajectory: Trajectory) -> str:
    if trajectory.value is None:
        return UNJUDGED
    return RESOLVED if trajectory.value >= 1 else UNRESOLVED


def _place(experience: TaskExperience, describe: Describe) -> tuple[_Drawing, list[Point]]:
    """Each main rollout, followed by its branches, the latest fork nearest to it; and the fork points."""
    drawing, forks = _Drawing(describe), []
    for main in experience.mains:
        drawing.add(main, 0)
        mine = [b for b in experience.branches if b.origin is not None and b.origin.parent == main.key]
        for branch in sorted(mine, key=lambda b: -_step(b)):
            forks.append(drawing.nodes[main.decisions[_step(branch)].state_id])
            drawing.add(branch, _step(branch))
    return drawing, forks


def _step(branch: Trajectory) -> int:
    return branch.origin.step if branch.origin is not None else 0


def draw_group(experience: TaskExperience, describe: Describe) -> Figure:
    """A figure of the group; `describe` gives the short text on an edge."""
    from matplotlib.figure import Figure

    drawing, forks = _place(experience, describe)
    width = 1 + max((x for x, _ in [*drawing.nodes.values(), *(p for p, _ in drawing.ends)]), default=1)
    figure = Figure(figsize=(1.0 + 0.95 * width, 1.3 + 0.42 * max(drawing.rows, 2)), dpi=150, layout="tight")
    axes = figure.subplots()
    for start, stop, color, text in drawing.edges.values():
        _edge(axes, start, stop, color, text)
    axes.scatter(*_columns(drawing.nodes.values()), s=26, color="#57606a", zorder=3)
    axes.scatter(*_columns(forks), s=90, facecolors="none", edgecolors="#0969da", linewidths=1.6, zorder=4)
    for point, color in drawing.ends:
        face = color if color == RESOLVED else "white"
        axes.scatter(*point, s=52, marker="s", facecolors=face, edgecolors=color, zorder=3)
    axes.invert_yaxis()
    axes.set_axis_off()
    counts = f"{len(experience.mains)} rollouts, {len(experience.forks)} forks, {len(experience.branches)} branches"
    axes.set_title(
        f"{experience.task}: {counts}\nring: decision gone back to   green: resolved   grey: not resolved",
        fontsize=8,
        loc="left",
    )
    return figure


def _columns(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    pairs = list(points)
    return [x for x, _ in pairs], [y for _, y in pairs]


def _edge(axes: Axes, start: Point, stop: Point, color: str, text: str) -> None:
    (x0, y0), (x1, y1) = start, stop
    bend = x0 + 0.35 if y0 != y1 else x0
    axes.plot([x0, bend, x1], [y0, y1, y1], color=color, linewidth=1.6 if color == RESOLVED else 1.0, zorder=2)
    axes.text((bend + x1) / 2, y1 - 0.12, text, fontsize=5.5, ha="center", va="bottom", color="#24292f")


@contextmanager
def describing(source: TaskSource, task: str) -> Iterator[Describe]:
    """Tells what an action does: in an environment of `task`, gone back to before each decision that is asked for."""
    env = source.make(task)
    env.reset(seed=0)

    def describe(decision: Decision) -> str:
        if not hasattr(env, "describe"):
            return str(decision.action)
        assert isinstance(decision.ref, StateRef)
        env.restore(decision.ref)
        text = str(env.describe(decision.action))
        return text if len(text) < 18 else f"edit {decision.action}"

    try:
        yield describe
    finally:
        env.close()
