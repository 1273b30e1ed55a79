"""Opens what `refork fork --attribute` is asked about, and has it searched."""

from __future__ import annotations

from pathlib import Path

from refork.cluster.forking import opened, task_job
from refork.envs.forkable import BadInput
from refork.replay.failure_search import Attribution, Search
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import Trajectory


def attribute(
    run: Path, task: str, policy: Path | None, episode: int | None, attempt: int | None, n: int, most: int, seed: int
) -> Attribution:
    """Search with at most `most` continuations, then play `n` of each correction; without `episode` and `attempt` in
    the newest rollout of the task that failed. Raises BadInput for one that did not fail and for what is not there."""
    job, store = task_job(run), TrajectoryStore(run / "trajectories")
    plain = episode is None and attempt is None
    rollout = store.find_failed(task) if plain else store.find(task, episode, attempt or 0)
    _check(rollout)
    with opened(job, task, policy or run) as (env, acting):
        search = Search(env, acting, rollout, seed)
        return search.attribution(n, most)


def _check(rollout: Trajectory) -> None:
    if rollout.value is None:
        raise BadInput(f"{rollout.key} was not judged: nothing says that it failed; choose another --attempt")
    if rollout.value >= 1:
        raise BadInput(f"{rollout.key} returned {rollout.value:+.3f}: nothing was lost; choose one that failed")
    if rollout.origin is not None:
        raise BadInput(f"{rollout.key} is a branch, and its first decisions are another rollout's; choose that one")
    if any(decision.ref is None for decision in rollout.decisions) or not rollout.decisions:
        raise BadInput(f"{rollout.key} has no snapshots before its decisions: nothing to go back to")
