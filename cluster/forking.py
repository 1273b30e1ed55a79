"""Goes back to a decision of a recorded rollout and plays on from it: what `refork fork` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from refork.agents.registry import make_policy
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find
from refork.cluster.run_folder import saved_job
from refork.cluster.tasks import TaskSource, task_source
from refork.cluster.training import build_trainer
from refork.envs.forkable import BadInput, ForkableEnv
from refork.replay.counterfactual import GroupRequest, play_branch
from refork.replay.failure_search import label
from refork.replay.policy import Policy, sample
from refork.replay.seeding import generator, task_seed
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import Decision, Origin, Trajectory
from refork.trainers.config import JobConfig


@dataclass(frozen=True)
class Forked:
    """A recorded rollout, the step gone back to, and the branches played from it."""

    rollout: Trajectory
    step: int
    branches: tuple[Trajectory, ...]
    labels: dict[int, str]
    """Text of the actions that occur at the step, where the environment has one."""

    @property
    def taken(self) -> float | None:
        return self.rollout.value

    @property
    def alternatives(self) -> float | None:
        """Mean return of the judged branches."""
        values = [b.value for b in self.branches if b.value is not None]
        return float(np.mean(values)) if values else None

    @property
    def differential(self) -> float | None:
        """Return of the taken action minus the mean return of the alternatives; None when a side was not judged."""
        return None if self.taken is None or self.alternatives is None else self.taken - self.alternatives


def fork_rollout(
    run: Path,
    task: str,
    step: int,
    actions: Sequence[int],
    n: int,
    policy: Path | None,
    episode: int | None,
    attempt: int,
    seed: int,
) -> Forked:
    """Raises BadInput for what is not there (run, task, step, action), InfraFailure when the state is lost."""
    job = task_job(run)
    rollout = TrajectoryStore(run / "trajectories").find(task, episode, attempt)
    decision = _decision(rollout, step)
    with opened(job, task, policy or run) as (env, acting):
        return _play(env, acting, rollout, step, decision, actions, n, seed)


def task_job(run: Path) -> JobConfig:
    """The job of a run on tasks. Raises BadInput for another."""
    job = JobConfig.model_validate(saved_job(run))
    if job.trainer.learns_from != "tasks":
        raise BadInput(f"{run}: is a run on games; `refork evaluate {run} --forks 16` goes back at every round of them")
    return job


@contextmanager
def opened(job: JobConfig, task: str, checkpoint: Path) -> Iterator[tuple[ForkableEnv, Policy]]:
    """The task's environment, and the policy of a checkpoint (or of a run's newest)."""
    source = task_source(job.env)
    policy = _policy(job, source, checkpoint)
    env = source.make(task)
    try:
        yield env, policy
    finally:
        env.close()
        source.close()


def _decision(rollout: Trajectory, step: int) -> Decision:
    if not 0 <= step < len(rollout.decisions):
        raise BadInput(f"--step {step}: {rollout.key} has decisions 0 to {len(rollout.decisions) - 1}")
    decision = rollout.decisions[step]
    if decision.ref is None:
        raise BadInput(f"--step {step}: no snapshot was taken before this decision of {rollout.key}")
    return decision


def _policy(job: JobConfig, source: TaskSource, checkpoint: Path) -> Policy:
    trainer = build_trainer(job, source.feature_names)
    trainer.load_state_dict(read(find(checkpoint)).state["trainer"])
    return make_policy(job.agent.kind, trainer.weights())


def _play(
    env: ForkableEnv,
    policy: Policy,
    rollout: Trajectory,
    step: int,
    decision: Decision,
    actions: Sequence[int],
    n: int,
    seed: int,
) -> Forked:
    request = GroupRequest(rollout.task, rollout.episode, seed, task_seed(seed, rollout.task))
    env.reset(seed=request.env_seed)
    ref = decision.ref
    assert ref is not None  # _decision saw to it
    observation = env.restore(ref)
    chosen = [a for action in actions for a in [_allowed(observation, action)] * n]
    chosen = chosen or _drawn(policy.probabilities(observation), decision.action, n, seed)
    branches = tuple(
        play_branch(env, policy, request, 1000 + i, ref, action, Origin(rollout.key, step, action == decision.action))
        for i, action in enumerate(chosen)
    )
    env.restore(ref)
    return Forked(rollout, step, branches, {a: label(env, a) for a in {decision.action, *chosen}})


def _allowed(observation: dict[str, np.ndarray], action: int) -> int:
    mask = observation["mask"]
    if not 0 <= action < len(mask) or not mask[action]:
        allowed = ", ".join(str(i) for i in np.flatnonzero(mask))
        raise BadInput(f"--action {action}: not possible in this state; possible are: {allowed}")
    return action


def _drawn(probabilities: np.ndarray, taken: int, n: int, seed: int) -> list[int]:
    """n draws from the policy restricted to what was not taken."""
    others = probabilities.copy()
    others[taken] = 0.0
    if others.max() <= 0.0:
        raise BadInput(f"no other action than {taken} is possible in this state; give --action {taken} to replay it")
    rng = generator(seed, "refork fork")
    return [sample(others, rng) for _ in range(n)]
