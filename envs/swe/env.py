"""`refork/SWE-v0`: repair a package by shell commands. Action and observation are text; the file system is the state.

A command already in the execution cache is answered from it; the sandbox then falls behind and catches up only when
something must really run: from the nearest state it can restore, by the commands since, comparing state ids.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
from refork.envs.forkable import Edge, ExecutionCache, Noise, Outcome, Spent, StateMismatch, StateRef
from refork.envs.swe.grading import grade
from refork.envs.swe.judging import Grader, Judge, Judgement, both, reward_of
from refork.envs.swe.lazy_sandbox import LazySandbox, Step
from refork.envs.swe.sandbox.base import Backend, CommandResult, Limits
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

SUBMIT = "submit"
"""The command that ends an episode."""
MAX_COMMAND = 100_000
Observation = dict[str, Any]
Ended = Literal["", "submitted", "out of steps", "out of time"]
EXIT_KILLED = 1_000
"""`exit_code` of a command that a limit ended."""


class UnicodeText(gymnasium.spaces.Text):
    """Any text of at most `max_length` characters; samples are printable ASCII."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


@dataclass(frozen=True)
class Episode:
    """All that the future of an episode depends on. `path` are the commands since the base."""

    path: tuple[Step, ...]
    steps_left: int
    seconds_left: float
    ended: Ended = ""


class SWEEnv(gymnasium.Env[Observation, str]):
    """Action: one `sh -c` command, or `submit`. Observation: `output`, `exit_code` (EXIT_KILLED: a limit ended it),
    `omitted_bytes`. Reward comes at the end: 1 iff the grading says so.

    `seconds` bounds what the commands cost, also those answered from the cache. It is no part of the state id.
    """

    def __init__(
        self,
        tasks: TaskSet,
        task: SWETask,
        backend: Backend,
        cache: ExecutionCache | None = None,
        *,
        grader: Grader = grade,
        close_backend: bool = False,
        max_steps: int = 50,
        seconds: float = 1_800.0,
        command_seconds: float = 60.0,
        output_bytes: int = 16_384,
    ) -> None:
        self.task = task
        self.cache = cache if task.deterministic else None
        self.max_steps, self.seconds, self.close_backend = max_steps, seconds, close_backend
        self.limits = Limits(wall_s=command_seconds, output_bytes=output_bytes)
        self.sandbox = LazySandbox(backend, tasks.spec(task), self.limits)
        self.judge = Judge(tasks, task, grader, self.cache)
        self.action_space = UnicodeText(MAX_COMMAND)
        longest = max(output_bytes + 200, len(task.problem_statement))
        self.observation_space = gymnasium.spaces.Dict(
            {
                "output": UnicodeText(longest, min_length=0),
                "exit_code": gymnasium.spaces.Box(-255, EXIT_KILLED, (), np.int32),
                "omitted_bytes": gymnasium.spaces.Box(0, 2**62, (), np.int64),
            }
        )
        self.episode = Episode((), max_steps, seconds)

    # ---- Gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """The untouched workspace; the output is the problem statement."""
        super().reset(seed=seed)
        self.episode = Episode((), self.max_steps, self.seconds)
        return observation(self.task.problem_statement), {**self._info(), "spent": Spent(False, 0.0)}

    def step(self, action: str) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Raises InfraFailure when the sandbox broke, StateMismatch when a replayed command led elsewhere."""
        if self.episode.ended:
            raise gymnasium.error.ResetNeeded(f"the episode is over ({self.episode.ended}): reset or restore first")
        seen, spent = self._command(action)
        self.episode = replace(self.episode, ended=self.episode.ended or self._exhausted())
        info: dict[str, Any] = {"spent": spent}
        reward = 0.0
        if self.episode.ended:
            judgement = self._judge()
            reward = reward_of(judgement.outcome)
            info = {"spent": both(spent, judgement.spent), "outcome": judgement.outcome}
        ended = self.episode.ended
        return seen, reward, ended == "submitted", ended.startswith("out of"), {**self._info(), **info}

    def close(self) -> None:
        self.sandbox.close()
        if self.close_backend:
            self.sandbox.backend.close()

    # ---- ForkableEnv

    @property
    def workspace_id(self) -> str:
        return self.episode.path[-1].state_id if self.episode.path else self.sandbox.base_id

    @property
    def state_id(self) -> str:
        row = [self.task.instance_id, self.workspace_id, self.episode.steps_left, self.episode.ended]
        return hashlib.sha256(json.dumps(row).encode()).hexdigest()

    def snapshot(self) -> StateRef:
        """The commands since the base, and a snapshot of the sandbox where it stands in this state."""
        e = self.episode
        kept = self.sandbox.keep(e.path)
        payload = {
            "path": [[step.command, step.state_id] for step in e.path],
            "steps_left": e.steps_left,
            "seconds_left": e.seconds_left,
            "ended": e.ended,
            "sandbox": None if kept is None else {"state_id": kept.state_id, "payload": dict(kept.payload)},
        }
        return StateRef(self.state_id, payload)

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Observation:
        """Files are brought back when the next command must really run, and compared then; `noise` changes nothing."""
        p = ref.payload
        path = tuple(Step(command, state_id) for command, state_id in p["path"])
        kept = p["sandbox"]
        if kept is not None:
            self.sandbox.know(StateRef(kept["state_id"], kept["payload"]))
        before = self.episode
        self.episode = Episode(path, p["steps_left"], p["seconds_left"], p["ended"])
        if (found := self.state_id) != ref.state_id:
            self.episode = before
            raise StateMismatch(f"{self.task.instance_id}: expected state {ref.state_id}, restored {found}")
        return observation("")

    def grade(self) -> Outcome:
        return self._judge().outcome

    # ---- inside

    def _info(self) -> dict[str, Any]:
        return {"workspace_id": self.workspace_id, "steps_left": self.episode.steps_left}

    def _judge(self) -> Judgement:
        return self.judge.grade(self.workspace_id, lambda: self.sandbox.at(self.episode.path))

    def _exhausted(self) -> Ended:
        if self.episode.seconds_left <= 0:
            return "out of time"
        return "out of steps" if self.episode.steps_left == 0 else ""

    def _command(self, command: str) -> tuple[Observation, Spent]:
        e = replace(self.episode, steps_left=self.episode.steps_left - 1)
        if command.strip() == SUBMIT:
            self.episode = replace(e, ended="submitted")
            return observation(""), Spent(False, 0.0)
        edge = self.cache.lookup(self.task.instance_id, self.workspace_id, self._key(command)) if self.cache else None
        executed = edge is None
        if edge is None:
            edge = self._execute(command)
        step = Step(command, edge.child_id)
        self.episode = replace(e, path=(*e.path, step), seconds_left=e.seconds_left - edge.cost_s)
        return decode_observation(edge.observation), Spent(executed, edge.cost_s)

    def _execute(self, command: str) -> Edge:
        sandbox = self.sandbox.at(self.episode.path)
        started = time.perf_counter()
        result = self.sandbox.run(command)
        cost_s = time.perf_counter() - started
        edge = Edge(encode_observation(seen_of(result)), cost_s, sandbox.state_id)
        self.sandbox.moved_to((*self.episode.path, Step(command, edge.child_id)))
        if self.cache and result.killed_by != "wall":  # wall time depends on what else the machine does
            self.cache.record(self.task.instance_id, self.workspace_id, self._key(command), edge)
        return edge

    def _key(self, command: str) -> str:
        return "sh:" + json.dumps([command, self.limits.wall_s, self.limits.output_bytes])


def observation(output: str, exit_code: int = 0, omitted_bytes: int = 0) -> Observation:
    return {
        "output": output,
        "exit_code": np.array(exit_code, np.int32),
        "omitted_bytes": np.array(omitted_bytes, np.int64),
    }


def seen_of(result: CommandResult) -> Observation:
    if result.killed_by is None:
        return observation(result.output, result.exit_code or 0, result.omitted_bytes)
    text = f"{result.output}\n[ended: the {result.killed_by} limit was reached]\n"
    return observation(text, EXIT_KILLED, result.omitted_bytes)


def encode_observation(seen: Mapping[str, Any]) -> bytes:
    return json.dumps([seen["output"], int(seen["exit_code"]), int(seen["omitted_bytes"])]).encode()


def decode_observation(data: bytes) -> Observation:
    """The inverse of `encode_observation`."""
    return observation(*json.loads(data))
