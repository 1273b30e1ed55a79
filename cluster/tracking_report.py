"""The fork tree of a finished run, for W&B: a picture of the task group that was gone back in most, and what every
decision gone back to was worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refork.cluster.tasks import TaskSource
from refork.cluster.tracking import Record, Tracking
from refork.cluster.wandb_sink import Table
from refork.replay.experience import ExperienceStore
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience
from refork.trainers.crr.advantages import differential

UPDATES = 20
"""The newest ones, among whose groups one is chosen."""
COLUMNS = ("rollout", "step", "action", "probability", "alternatives", "differential")


def report_forks(family: Any, experience: ExperienceStore, tracking: Tracking, folder: Path) -> None:
    """Draw into `folder/fork_tree.png`, where the family plays tasks and W&B is on. What fails is a warning."""
    source = getattr(family, "source", None)
    if isinstance(experience, TrajectoryStore) and source is not None:
        tracking.keep("fork trees", lambda record: _report(source, experience, record, folder / "fork_tree.png"))


def _report(source: TaskSource, store: TrajectoryStore, record: Record, picture: Path) -> None:
    from refork.cluster.tree_picture import describing, draw_group

    group = most_forked(store)
    if group is None:
        return
    with describing(source, group.task) as describe:
        draw_group(group, describe).savefig(picture)
    record.report("fork_tree", picture, differentials(group))


def most_forked(store: TrajectoryStore) -> TaskExperience | None:
    """The group with the most forks of the newest updates, the newest of equals; None when nothing was forked."""
    groups = [group for update in store.updates()[-UPDATES:] for group in store.read(update) if group.forks]
    return max(groups, key=lambda group: (len(group.forks), group.episode), default=None)


def differentials(group: TaskExperience) -> Table:
    """A row for each fork: the return with the action taken minus the mean return of its alternatives."""
    by_key = {trajectory.key: trajectory for trajectory in group.trajectories}
    rows = []
    for fork in group.forks:
        taken = by_key[fork.parent].decisions[fork.step]
        others = len(fork.alternatives)
        rows.append((fork.parent, fork.step, taken.action, taken.probability, others, differential(fork, by_key)))
    return Table(COLUMNS, rows)
