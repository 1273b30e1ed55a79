"""Draws a rollout and the branches that leave it as a tree of text."""

from __future__ import annotations

from refork.cluster.forking import Forked
from refork.envs.forkable import InfraError, Outcome, Reward, Timeout
from refork.replay.trajectory import Trajectory
from rich.markup import escape
from rich.tree import Tree


def fork_tree(forked: Forked) -> Tree:
    """The rollout up to the step, what it did there, and every branch with its actions and its end."""
    rollout, step = forked.rollout, forked.step
    tree = Tree(f"{escape(rollout.key)}  state before decision {step}: {rollout.decisions[step].state_id[:12]}")
    if step:
        before = " ".join(str(d.action) for d in rollout.decisions[:step])
        tree.add(f"[dim]before: {before}[/]")
    _add(tree, "taken", rollout, step, forked.labels)
    for branch in forked.branches:
        _add(tree, "instead", branch, 0, forked.labels)
    return tree


def _add(tree: Tree, word: str, trajectory: Trajectory, start: int, labels: dict[int, str]) -> None:
    decisions = trajectory.decisions[start:]
    if not decisions:
        tree.add(f"{word}: {_ended(trajectory.outcome)}")
        return
    first = decisions[0]
    text = f"  {escape(labels.get(first.action, ''))}" if labels.get(first.action) else ""
    node = tree.add(f"{word} [bold]{first.action}[/] (p {first.probability:.3f}){text}")
    rest = " ".join(str(d.action) for d in decisions[1:])
    node.add(f"{f'then {rest}  ' if rest else ''}{_ended(trajectory.outcome)}")


def _ended(outcome: Outcome) -> str:
    match outcome:
        case Reward(value):
            return f"[{'green' if value > 0 else 'red'}]return {value:g}[/]"
        case InfraError(reason):
            return f"[yellow]not judged: {escape(reason)}[/]"
        case Timeout(where):
            return f"[yellow]not judged: timeout in {escape(where)}[/]"
