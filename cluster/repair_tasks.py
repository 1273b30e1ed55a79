"""The tasks of the repair menu: built task sets, split by package; one backend and one cache per process."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cached_property
from typing import get_args

from refork.cluster.tasks import Baseline, check_options
from refork.envs.forkable import BadInput, ForkableEnv
from refork.envs.home import check_home, home
from refork.envs.registry import make_env
from refork.envs.swe.baselines import NaturalGreedy, OchiaiGreedy, Uniform
from refork.envs.swe.features import FEATURES
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.sandbox.opening import open_backend
from refork.envs.swe.tasks import Split, SWETask
from refork.envs.swe.taskset import TaskSet
from refork.replay.dag import StateDag
from refork.trainers.config import EnvConfig

OPTIONS = ("size", "max_steps")
"""Keywords of RepairMenuEnv that a job may set."""


class RepairSource:
    """Mutation tasks of a built task set, in one shared backend and one shared cache per process."""

    feature_names = FEATURES

    def __init__(self, env: EnvConfig) -> None:
        """Raises BadInput: no task set, an option it lacks, a package not in it or in two splits, no place to write."""
        check_options(env.options, OPTIONS)
        self._env = env
        self._set = TaskSet.open(env.tasks)
        self._tasks = {t.instance_id: t for t in self._set.tasks if t.kind == "mutation"}
        self._check_packages()
        check_home()

    def names(self, split: Split) -> list[str]:
        return sorted(name for name, task in self._tasks.items() if self._split(task) == split)

    def package(self, task: str) -> str:
        return self._set.get(task).package

    def make(self, task: str) -> ForkableEnv:
        row = self._set.get(task)
        cache = self._dag if self._env.cache and row.deterministic else None
        return make_env(
            self._env.id, task=row, backend=self._backend, cache=cache, tasks=self._set, **self._env.options
        )

    def baselines(self) -> dict[str, Baseline]:
        return {
            "ochiai_greedy": Baseline(OchiaiGreedy(), "greedy"),
            "natural_greedy": Baseline(NaturalGreedy(), "greedy"),
            "random": Baseline(Uniform(), "sampled"),
        }

    def close(self) -> None:
        held = vars(self)
        if "_backend" in held:
            self._backend.close()
        if "_dag" in held:
            self._dag.close()

    @cached_property
    def _backend(self) -> Backend:
        return open_backend(self._env.backend)

    @cached_property
    def _dag(self) -> StateDag:
        return StateDag(home() / "dag" / "dag.sqlite")

    def _listed(self, split: Split) -> tuple[str, ...]:
        """Packages that the job names for a split."""
        return {"train": self._env.train, "validation": self._env.validation, "held_out": self._env.held_out}[split]

    def _split(self, task: SWETask) -> Split | None:
        """Where the job puts the task's package; else where its recipe does, unless the job names that split's own."""
        for split in get_args(Split):
            if task.package in self._listed(split):
                return split
        return None if self._listed(task.split) else task.split

    def _check_packages(self) -> None:
        known = sorted({task.package for task in self._tasks.values()})
        seen: set[str] = set()
        for split in get_args(Split):
            for package in self._listed(split):
                if package not in known:
                    near = get_close_matches(package, known, 1)
                    guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
                    raise BadInput(f"env.{split}: no tasks of package {package!r} in {self._set.folder}; {guess}")
                if package in seen:
                    raise BadInput(f"env.{split}: package {package!r} is in two splits; a package belongs to one")
                seen.add(package)
