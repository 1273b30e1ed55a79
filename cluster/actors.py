"""Collects experience from a pool of Ray actors. A lost actor costs its unit a second asking, never the run."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from refork.cluster.collector import Sink
from refork.cluster.local_ray import ray
from refork.cluster.node_sweep import begin_sweeps
from refork.cluster.playing import PlayerSpec, Unit
from refork.cluster.resources import Need, kernel_oom_kills
from refork.cluster.running_ray import RunningRay
from refork.envs.forkable import BadInput, InfraFailure
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.replay.experience import Experience
from refork.replay.player import GroupRequest

log = logging.getLogger("refork.actors")

ASKINGS = 2
"""A unit whose player dies is asked once more (everything in it is seeded, so it plays the same); then it is
lost: what kills every player must not kill the run."""


@dataclass(frozen=True)
class PoolLimits:
    """When the pool gives up on an actor, and on itself."""

    deadline_s: float = 1800.0
    """Seconds one unit may take; then its actor is killed and replaced."""
    restarts: int = 20
    """Actors replaced in a row without a unit played in between; then the run stops."""
    backoff_s: float = 0.5
    """Pause before the first replacement, doubled with each one in a row, at most 30 s."""
    start_s: float = 600.0
    """Seconds without any actor, since no node has room for one; then the run stops."""


@dataclass
class _Work:
    """One unit on its way."""

    index: int
    unit: Unit
    askings: int = 0
    since: float = 0.0


class RayCollector:
    """Plays units on actors; results do not depend on how many there are."""

    def __init__(
        self,
        spec: PlayerSpec,
        need: Need,
        cluster: RunningRay,
        sinks: Sequence[Sink] = (),
        limits: PoolLimits | None = None,
        share: slice = slice(None),
    ) -> None:
        """`cluster` is left when this is closed. `share`: which of the units it plays; all, unless others play the
        rest."""
        self._spec, self._sinks, self._limits = spec, tuple(sinks), limits or PoolLimits()
        self._cluster, self._need, self._own = cluster, need, share
        self._weights: tuple[int, Any] | None = None
        self._idle: deque[Any] = deque()
        self._starting: dict[Any, Any] = {}
        """Actors that are not up yet, by the request that they answer when they are. Work goes to those that are, so
        that a run goes on with what is left of its nodes."""
        self._failures = 0
        self._alive = 0.0
        """When something was last heard of an actor."""
        self._oom_kills = kernel_oom_kills()
        self.replaced = 0
        """Actors replaced so far."""

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        how: Any = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[Any]:
        """Experience in the order of the requests. Raises InfraFailure when actors die faster than they play."""
        shared = self._share(weights, version)
        waiting = deque(_Work(i, unit) for i, unit in enumerate(self._spec.units(requests)[self._own]))
        running: dict[Any, tuple[Any, _Work]] = {}
        played: dict[int, Any] = {}
        self._alive = time.monotonic()
        try:
            while waiting or running:
                self._fill(len(running))
                while waiting and self._idle:
                    work, actor = waiting.popleft(), self._idle.popleft()
                    work.since = time.monotonic()
                    running[actor.play.remote(work.unit, shared, version, how, baseline)] = (actor, work)
                for ref in self._finished(running):
                    if ref in self._starting:
                        self._take_up(ref)
                        continue
                    actor, work = running.pop(ref)
                    result = self._result(ref, actor, work)
                    if result is None:
                        waiting.appendleft(work)
                        continue
                    played[work.index] = result
                    for sink in self._sinks if record else ():
                        sink(result)
        except BaseException:
            for actor, _ in running.values():  # nothing plays on unseen; the next collection starts new ones
                ray.kill(actor)
            raise
        return [played[i] for i in sorted(played)]

    def start_actors(self) -> None:
        """Have all actors up before the first collection (which would start them otherwise)."""
        self._alive = time.monotonic()
        while len(self._idle) < self._need.actors:
            self._fill(0)
            for ref in self._finished({}):
                self._take_up(ref)

    def _fill(self, running: int) -> None:
        """Have as many actors as are wanted: idle, at work, or on their way."""
        for _ in range(self._need.actors - running - len(self._idle) - len(self._starting)):
            actor = self._new_actor()
            self._starting[actor.pid.remote()] = actor

    def _take_up(self, ref: Any) -> None:
        """An actor is up, or died before it was."""
        actor = self._starting.pop(ref)
        try:
            ray.get(ref)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            self._mourn(actor, "before it played", _cause(error, self._oom_kills))
            return
        self._idle.append(actor)

    def pids(self) -> list[int]:
        """Processes of the idle actors."""
        return ray.get([actor.pid.remote() for actor in self._idle])

    def close(self) -> None:
        """Let every actor close its environments, then leave Ray."""
        if closing := [actor.close.remote() for actor in self._idle]:
            ray.wait(closing, num_returns=len(closing), timeout=20)
        self._cluster.stop()

    def _share(self, weights: Mapping[str, np.ndarray], version: int) -> Any:
        """The weights in the object store, put there once per version."""
        if self._weights is None or self._weights[0] != version:
            self._weights = (version, ray.put(dict(weights)))
        return self._weights[1]

    def _finished(self, running: Mapping[Any, tuple[Any, _Work]]) -> list[Any]:
        """Requests that have ended; actors beyond their deadline are killed, which ends theirs."""
        done, _ = ray.wait([*running, *self._starting], num_returns=1, timeout=1.0)
        self._check_start(bool(done) or bool(running))
        late = time.monotonic() - self._limits.deadline_s
        for actor, work in running.values():
            if work.since < late:
                log.warning("%s: no answer for %.0f s, actor killed", work.unit.task, self._limits.deadline_s)
                ray.kill(actor)
        return done

    def _check_start(self, alive: bool) -> None:
        """Raises InfraFailure when no actor has come up for too long."""
        now = time.monotonic()
        self._alive = now if alive else self._alive
        if now - self._alive > self._limits.start_s:
            raise InfraFailure(
                f"no rollout actor came up within {self._limits.start_s:.0f} s: no node has room for one of "
                f"{self._need.cpus:g} CPU; start nodes, then go on with --resume"
            )

    def _result(self, ref: Any, actor: Any, work: _Work) -> Experience | None:
        """The experience, a lost one, or None: to be asked again. An actor that lives is idle again."""
        try:
            result = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            self._idle.append(actor)
            known = isinstance(error.cause, BadInput | InfraFailure | UnsupportedHost)  # said in one line, as here
            raise (error.cause if known else error.as_instanceof_cause()) from None
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            return self._lost(actor, work, _cause(error, self._oom_kills))
        self._failures = 0
        self._idle.append(actor)
        return result

    def _lost(self, actor: Any, work: _Work, cause: str) -> Experience | None:
        work.askings += 1
        self._mourn(actor, f"at {work.unit.task}", cause)
        if work.askings < ASKINGS:
            return None
        return self._spec.lost(work.unit, f"rollout actor lost: {cause}")

    def _mourn(self, actor: Any, where: str, cause: str) -> None:
        """Count an actor's death; another takes its place. Raises InfraFailure when too many died in a row."""
        self._oom_kills = kernel_oom_kills()
        self._failures += 1
        self.replaced += 1
        if self._failures > self._limits.restarts:
            raise InfraFailure(f"{self._failures} rollout actors died in a row, the last one: {cause}")
        log.warning("rollout actor lost %s (%s); replaced", where, cause)
        begin_sweeps()  # of its sandboxes, on whichever node it was
        ray.kill(actor)
        time.sleep(min(30.0, self._limits.backoff_s * 2 ** (self._failures - 1)))

    def _new_actor(self) -> Any:
        need: dict[str, Any] = {"num_cpus": self._need.cpus, "resources": dict(self._need.resources)}
        remote = ray.remote(self._spec.player()).options(**need, max_restarts=0, max_task_retries=0)
        return remote.remote(self._spec)


def _cause(error: Exception, oom_kills: int) -> str:
    """One line that says memory when it was memory: Ray's own watch, or the kernel's, which Ray does not see."""
    if isinstance(error, ray.exceptions.OutOfMemoryError) or kernel_oom_kills() > oom_kills:
        return "out of memory: use fewer actors, or lower the memory limit of sandboxes"
    if not isinstance(error, ray.exceptions.ActorDiedError):
        return "unreachable"
    exit_lines = [line.strip() for line in str(error).splitlines() if "exit" in line.lower()]
    return f"died: {exit_lines[0][:160]}" if exit_lines else "died"
