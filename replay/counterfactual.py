"""One unit of rollout work: a task's group of main rollouts, the forks of some of them, the branches played.

Which rollouts are forked and how often is this project's choice; the defaults are those that did best in its toys:
only tasks whose group saw both outcomes, only rollouts above the group's mean, many forks with one alternative each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from refork.envs.forkable import ForkableEnv, InfraError, Noise, Outcome
from refork.replay.fork_points import ForkPoint, Points, every_kth, fixed, points
from refork.replay.player import GroupRequest, Player, play_branch
from refork.replay.policy import Policy, sample
from refork.replay.seeding import generator
from refork.replay.trajectory import Decision, Fork, Origin, TaskExperience, Trajectory

Which = Literal["mixed_successes", "mixed_failures", "mixed", "all"]


@dataclass(frozen=True)
class ForkConfig:
    """How much is forked, and where."""

    which: Which = "mixed_successes"
    """Rollouts forked: those above the mean of a group with both outcomes; under it; all of such a group; all."""
    rule: str = "entropy"
    """Fork-point rule (replay/fork_points.py)."""
    forks: float = 8.0
    """Fork points per forked rollout; a fraction is rounded up with that probability."""
    alternatives: int = 1
    """K: actions drawn per fork point (`actions`)."""
    replays: int = 0
    """M - 1: fresh continuations with the action taken."""
    floor: float = 0.0
    """A point is skipped when no other action is possible, or none has at least this probability."""
    noise: Noise = "fresh"
    """Exogenous randomness of a branch."""
    actions: Literal["others", "policy"] = "others"
    """Alternatives are drawn from the policy without the action taken, or from the policy as it is: then those that
    take it again count as replays, and all are continuations of the state."""
    every: int = 0
    """Fork at every so-manyth decision from the first on, and leave `rule` and `forks` aside; 0: as these say."""
    by_difficulty: bool = False
    """Multiply `forks` by what the group's mean return lacks to 1 (within 0 and 1)."""


def collect_group(
    env: ForkableEnv, policy: Policy, request: GroupRequest, config: ForkConfig | None = None, version: int = 0
) -> TaskExperience:
    """Play a group and, with a `config`, its forks. Failures of the machinery become outcomes, never exceptions.

    The result depends on the arguments alone, not on who plays it or what was played before.
    """
    mains = _play_mains(env, policy, request)
    experience = TaskExperience(request.task, request.episode, tuple(mains), version=version)
    return experience if config is None else _add_forks(env, policy, request, config, experience)


def lost_group(request: GroupRequest, reason: str) -> TaskExperience:
    """What stands for a group whose player was lost: `size` infra outcomes without decisions."""
    mains = (
        Trajectory(request.task, request.episode, attempt, (), InfraError(reason)) for attempt in range(request.size)
    )
    return TaskExperience(request.task, request.episode, tuple(mains))


def _play_mains(env: ForkableEnv, policy: Policy, request: GroupRequest) -> list[Trajectory]:
    mains: list[Trajectory] = []
    for attempt in range(request.size):
        player = Player(env, policy, request, attempt)
        mains.append(player.main())
        if not player.started:  # a task that cannot be reset is not tried again and again
            lost = lost_group(request, _reason(mains[-1].outcome)).mains
            return mains + list(lost[attempt + 1 :])
    return mains


def _reason(outcome: Outcome) -> str:
    return outcome.reason if isinstance(outcome, InfraError) else ""


def _add_forks(
    env: ForkableEnv, policy: Policy, request: GroupRequest, config: ForkConfig, experience: TaskExperience
) -> TaskExperience:
    rng = generator(request.seed, f"forks/{request.task}", request.episode)
    branches: list[Trajectory] = []
    forks: list[Fork] = []
    skipped = 0
    for parent in forked_rollouts(experience.mains, config.which):
        search = _points(parent, experience.mains, config, rng)
        better: bool | None = None
        while (point := _next(search, better)) is not None:
            played = _play_fork(env, policy, request, config, parent, point, request.size + len(branches), rng)
            better = _better(parent, played or ())
            if played is None:
                skipped += 1
                continue
            forks.append(_fork(parent, point, played))
            branches += played
    return replace(experience, branches=tuple(branches), forks=tuple(forks), skipped=skipped)


def _points(parent: Trajectory, group: Sequence[Trajectory], config: ForkConfig, rng: np.random.Generator) -> Points:
    """Where `parent` is forked."""
    if config.every:
        return fixed(every_kth(parent, config.every))
    forks = config.forks * (difficulty(group) if config.by_difficulty else 1.0)
    return points(config.rule, parent, group, int(forks + rng.random()), rng)


def _next(search: Points, better: bool | None) -> ForkPoint | None:
    try:
        return search.send(better)
    except StopIteration:
        return None


def _better(parent: Trajectory, played: Sequence[Trajectory]) -> bool | None:
    """Whether a branch with another action returned more than the rollout; None when none was judged."""
    values = [t.value for t in played if t.value is not None and t.origin is not None and not t.origin.same_action]
    return max(values) > parent.value if values and parent.value is not None else None


def difficulty(group: Sequence[Trajectory]) -> float:
    """What the mean return of the judged in `group` lacks to 1, within 0 and 1; 1 when none was judged."""
    values = [t.value for t in group if t.value is not None]
    return float(np.clip(1.0 - np.mean(values), 0.0, 1.0)) if values else 1.0


def forked_rollouts(mains: Sequence[Trajectory], which: Which) -> list[Trajectory]:
    """The main rollouts worth forking: with decisions, judged, and as `which` says."""
    judged = [(m, m.value) for m in mains if m.value is not None and m.decisions]
    values = [value for _, value in judged]
    if which != "all" and len(set(values)) < 2:
        return []
    mean = float(np.mean(values)) if values else 0.0
    wanted = {"mixed_successes": lambda value: value > mean, "mixed_failures": lambda value: value < mean}
    return [m for m, value in judged if wanted.get(which, lambda _: True)(value)]


def _play_fork(
    env: ForkableEnv,
    policy: Policy,
    request: GroupRequest,
    config: ForkConfig,
    parent: Trajectory,
    point: ForkPoint,
    attempt: int,
    rng: np.random.Generator,
) -> list[Trajectory] | None:
    """The branches of one fork point; None when no other action reaches the floor."""
    decision = parent.decisions[point.step]
    actions = _first_actions(policy, decision, config, rng)
    if actions is None or decision.ref is None:
        return None
    return [
        play_branch(
            env,
            policy,
            request,
            attempt + i,
            decision.ref,
            action,
            Origin(parent.key, point.step, action == decision.action),
            config.noise,
        )
        for i, action in enumerate(actions)
    ]


def _first_actions(
    policy: Policy, decision: Decision, config: ForkConfig, rng: np.random.Generator
) -> list[int] | None:
    """What the branches begin with; None when the point is skipped."""
    probabilities = policy.probabilities(decision.observation)
    others = probabilities.copy()
    others[decision.action] = 0.0
    drawn_from = others if config.actions == "others" else probabilities
    if not drawn_from.any() or others.max() < config.floor:
        return None
    return [sample(drawn_from, rng) for _ in range(config.alternatives)] + [decision.action] * config.replays


def _fork(parent: Trajectory, point: ForkPoint, played: Sequence[Trajectory]) -> Fork:
    same = {t.key: t.origin is not None and t.origin.same_action for t in played}
    return Fork(
        parent.key,
        point.step,
        point.probability,
        alternatives=tuple(key for key, is_same in same.items() if not is_same),
        replays=tuple(key for key, is_same in same.items() if is_same),
    )
