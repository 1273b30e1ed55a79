"""Plays task groups: the plain class that is an actor on a cluster and an object in one process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from refork.agents.registry import make_policy
from refork.cluster.tasks import task_source
from refork.envs.forkable import ForkableEnv, InfraFailure
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group, lost_group
from refork.replay.policy import Policy
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import EnvConfig


@dataclass(frozen=True)
class RolloutSpec:
    """All that an actor is made from; small and picklable."""

    env: EnvConfig
    agent: str
    """Kind of agent, as in `agents/registry.py`."""
    open_envs: int = 64
    """Environments kept open, with what they have worked out; the least recently used is closed first."""

    def player(self) -> type[Rollout]:
        return Rollout

    def units(self, requests: Sequence[GroupRequest]) -> Sequence[GroupRequest]:
        return requests

    def lost(self, unit: GroupRequest, reason: str) -> TaskExperience:
        return lost_group(unit, reason)


class Rollout:
    """Owns environments and a policy of some version. One thread."""

    def __init__(self, spec: RolloutSpec) -> None:
        self._spec = spec
        self._source = task_source(spec.env)
        self._envs: OrderedDict[str, ForkableEnv] = OrderedDict()
        self._policy: tuple[int, Policy] | None = None

    def play(
        self,
        unit: GroupRequest,
        weights: Mapping[str, np.ndarray],
        version: int,
        how: ForkConfig | None = None,
        baseline: str = "",
    ) -> TaskExperience:
        """One group under `weights`, or under the named `baseline` of the environment.

        An environment that cannot be made is an infra outcome of the group, not an exception.
        """
        try:
            env = self._env(unit.task)
        except InfraFailure as failure:
            return lost_group(unit, str(failure))
        policy = self._source.baselines()[baseline].policy if baseline else self._acting(weights, version)
        return collect_group(env, policy, unit, how, version)

    def pid(self) -> int:
        """The process this one lives in."""
        return os.getpid()

    def close(self) -> None:
        """Close every environment and what they share."""
        while self._envs:
            self._envs.popitem()[1].close()
        self._source.close()

    def _acting(self, weights: Mapping[str, np.ndarray], version: int) -> Policy:
        if self._policy is None or self._policy[0] != version:
            self._policy = (version, make_policy(self._spec.agent, weights))
        return self._policy[1]

    def _env(self, task: str) -> ForkableEnv:
        if task in self._envs:
            self._envs.move_to_end(task)
            return self._envs[task]
        while len(self._envs) >= self._spec.open_envs:
            self._envs.popitem(last=False)[1].close()
        self._envs[task] = self._source.make(task)
        return self._envs[task]
