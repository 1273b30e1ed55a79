"""A built task set on disk: the tasks, and for each what a sandbox starts from and what grading lays over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from refork.envs.forkable import BadInput
from refork.envs.home import home
from refork.envs.swe.sandbox.base import SandboxSpec
from refork.envs.swe.task_rows import read_tasks
from refork.envs.swe.tasks import Split, SWETask
from refork.envs.swe.testrun import PRELOAD, path_variable

TASKS = "tasks.jsonl"
SOLUTIONS = "solutions.jsonl"
QUARANTINE = "quarantine.jsonl"
ENVIRONMENT = "env"


def default_folder() -> Path:
    """Where `refork tasks build` puts its set unless told otherwise."""
    return home() / "tasks"


@dataclass(frozen=True)
class TaskSet:
    """`folder` holds tasks.jsonl, env/, and the folders that the tasks name. Reading never writes there."""

    folder: Path

    @classmethod
    def open(cls, folder: Path | None = None) -> TaskSet:
        """The set in `folder` (None: the default one). Raises BadInput when there is none."""
        found = cls((folder or default_folder()).absolute())
        if not (found.folder / TASKS).is_file():
            raise BadInput(f"no task set in {found.folder}; build one with: refork tasks build")
        return found

    @cached_property
    def tasks(self) -> tuple[SWETask, ...]:
        """All tasks, in the file's order. Raises BadInput for a malformed row."""
        return tuple(read_tasks(self.folder / TASKS))

    @cached_property
    def by_id(self) -> Mapping[str, SWETask]:
        return {task.instance_id: task for task in self.tasks}

    def get(self, instance_id: str) -> SWETask:
        """Raises BadInput for an id that is not in the set."""
        if instance_id not in self.by_id:
            raise BadInput(f"no task {instance_id!r} in {self.folder}; list them with: refork tasks list --ids")
        return self.by_id[instance_id]

    def split(self, split: Split) -> tuple[SWETask, ...]:
        return tuple(task for task in self.tasks if task.split == split)

    @property
    def python_env(self) -> Path:
        """The folder of installed packages that all tasks of the set share."""
        return self.folder / ENVIRONMENT

    def base(self, task: SWETask) -> Path:
        return self.folder / task.base

    def spec(self, task: SWETask) -> SandboxSpec:
        """What the task's sandboxes start from."""
        return SandboxSpec(
            base=self.base(task),
            base_id=task.base_id,
            python_env=self.python_env,
            image=task.metadata.get("image"),
            environment={"PYTHONPATH": path_variable(task.python_path)},
            preload=PRELOAD,
        )

    def test_texts(self, task: SWETask) -> dict[str, bytes]:
        """The task's own test files by workspace-relative path."""
        return {path: (self.folder / task.tests / path).read_bytes() for path in task.test_files}
