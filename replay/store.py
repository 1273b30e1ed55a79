"""The trajectories of a run on disk: one compressed file of JSON lines an update, a line per task group.

A file is there whole or not at all (temp file, fsync, rename), so a crash loses at most the update it happened in, and
that one is played again on resuming. Observations are left out: a decision's reference restores them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refork.envs.forkable import BadInput, StateRef, outcome_from_json, outcome_to_json
from refork.replay.trajectory import Decision, Fork, Origin, TaskExperience, Trajectory
from refork.replay.update_files import UpdateFiles


class TrajectoryStore(UpdateFiles):
    """The `trajectories/` folder of a run."""

    suffix = ".jsonl.gz"

    def write(self, update: int, experience: Sequence[TaskExperience]) -> Path:
        """Keep what update number `update` collected, replacing what was there. Raises OSError (disk full)."""
        lines = "".join(json.dumps(experience_to_json(e), separators=(",", ":")) + "\n" for e in experience)
        return self.write_whole(update, gzip.compress(lines.encode(), compresslevel=3, mtime=0))

    def read(self, update: int) -> list[TaskExperience]:
        """What was collected. Raises BadInput naming file and line when it cannot be read."""
        return [experience_from_json(data) for data in self._lines(update)]

    def find(self, task: str, episode: int | None = None, attempt: int | None = None) -> Trajectory:
        """The newest trajectory of `task` that fits, a main rollout (attempt 0) unless `attempt` says else.

        Raises BadInput saying what there is instead.
        """
        tasks: set[str] = set()
        for update in reversed(self.updates()):
            for data in self._lines(update):
                tasks.add(data["task"])
                if data["task"] == task and episode in (None, data["episode"]):
                    return self._pick(experience_from_json(data), attempt or 0)
        which = f"{task} in episode {episode}" if episode is not None and task in tasks else task
        known = ", ".join(sorted(tasks)[:5]) or "none"
        raise BadInput(f"{self.folder}: no trajectory of {which}; tasks recorded: {known} ({len(tasks)} in all)")

    def find_failed(self, task: str) -> Trajectory:
        """The newest main rollout of `task` that was judged and returned less than 1. Raises BadInput without one."""
        found = 0
        for update in reversed(self.updates()):
            for data in self._lines(update):
                if data["task"] == task:
                    mains = experience_from_json(data).mains
                    found += len(mains)
                    failed = [t for t in mains if t.value is not None and t.value < 1 and t.decisions]
                    if failed:
                        return failed[0]
        if not found:
            self.find(task)  # says what there is
        raise BadInput(f"{self.folder}: none of the {found} rollouts of {task} failed; take another task")

    def _pick(self, experience: TaskExperience, attempt: int) -> Trajectory:
        for trajectory in experience.trajectories:
            if trajectory.attempt == attempt:
                return trajectory
        raise BadInput(
            f"{self.folder}: {experience.task} in episode {experience.episode} has no attempt {attempt}; "
            f"there are 0 to {len(experience.trajectories) - 1}"
        )

    def _lines(self, update: int) -> Iterator[dict[str, Any]]:
        path = self.path(update)
        read = 0
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for line in lines:
                    yield json.loads(line)
                    read += 1
        except (OSError, EOFError, ValueError) as error:
            raise BadInput(f"{path}: line {read + 1} cannot be read ({error}); remove the file to go on") from error


def experience_to_json(experience: TaskExperience) -> dict[str, Any]:
    """JSON values; `experience_from_json` is its inverse but for observations."""
    fields = {**vars(experience), "forks": [asdict(f) for f in experience.forks]}
    for name in ("mains", "branches"):
        fields[name] = [_trajectory_to_json(t) for t in fields[name]]
    return fields


def experience_from_json(data: Mapping[str, Any]) -> TaskExperience:
    """Observations are None. Raises KeyError or TypeError for other data."""
    forks = [
        Fork(**{**f, "alternatives": tuple(f["alternatives"]), "replays": tuple(f["replays"])}) for f in data["forks"]
    ]
    mains, branches = (tuple(map(_trajectory_from_json, data[name])) for name in ("mains", "branches"))
    return TaskExperience(**{**data, "mains": mains, "branches": branches, "forks": tuple(forks)})


def _trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    return {
        **vars(trajectory),
        "decisions": [_decision_to_json(d) for d in trajectory.decisions],
        "outcome": outcome_to_json(trajectory.outcome),
        "origin": None if trajectory.origin is None else asdict(trajectory.origin),
    }


def _trajectory_from_json(data: Mapping[str, Any]) -> Trajectory:
    return Trajectory(
        **{
            **data,
            "decisions": tuple(_decision_from_json(d) for d in data["decisions"]),
            "outcome": outcome_from_json(data["outcome"]),
            "origin": None if data["origin"] is None else Origin(**data["origin"]),
        }
    )


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    fields = {name: value for name, value in vars(decision).items() if name != "observation"}
    fields["ref"] = None if decision.ref is None else dict(decision.ref.payload)
    return fields


def _decision_from_json(data: Mapping[str, Any]) -> Decision:
    ref = None if data["ref"] is None else StateRef(data["state_id"], data["ref"])
    return Decision(**{**data, "observation": None, "ref": ref})
