"""Draws the state DAG that one task group played: `python -m refork.scripts.draw_tree RUN TASK [OUT.png]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from refork.cluster.tree_picture import describing, draw_group
from refork.envs.forkable import BadInput
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience


def read_group(run: Path, task: str) -> TaskExperience:
    """The recorded group of `task` with the most forks, the newest of equals. Raises BadInput."""
    store = TrajectoryStore(run / "trajectories")
    groups = [e for update in store.updates() for e in store.read(update) if e.task == task]
    if not groups:
        raise BadInput(f"{run}: no group of task {task} is recorded")
    return max(groups, key=lambda e: (len(e.forks), e.episode))


def draw(run: Path, task: str, out: Path) -> None:
    """Write the picture of the group of `task` with the most forks. Raises BadInput."""
    from refork.cluster.run_folder import saved_job
    from refork.cluster.tasks import task_source
    from refork.trainers.config import JobConfig

    source = task_source(JobConfig.model_validate(saved_job(run)).env)
    try:
        experience = read_group(run, task)
        with describing(source, task) as describe:
            draw_group(experience, describe).savefig(out)
    finally:
        source.close()


def main(arguments: Sequence[str]) -> int:
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    run, task = Path(arguments[0]), arguments[1]
    out = Path(arguments[2]) if len(arguments) == 3 else run / f"tree-{task}.png"
    try:
        draw(run, task, out)
    except BadInput as error:
        print(f"refork: {error}", file=sys.stderr)
        return 2
    print(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
