"""One repair task's workplace: its workspaces, a sandbox opened only when something must really run, its judge."""

from __future__ import annotations

from refork.envs.forkable import ExecutionCache, Reward, Spent
from refork.envs.swe.grading import grade
from refork.envs.swe.judging import Grader, Judge, Judgement
from refork.envs.swe.localise import OUT_OF_TIME, Spectrum, Verdict
from refork.envs.swe.prober import Probe, Prober
from refork.envs.swe.repair_state import Workspace, Workspaces
from refork.envs.swe.sandbox.base import Backend, Sandbox
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet


class Workbench:
    """Not thread-safe. `close` ends the sandbox, and the backend with `close_backend`.

    A task that did not pass the determinism audit uses no cache.
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
    ) -> None:
        self.task, self.backend, self.spec = task, backend, tasks.spec(task)
        cache = cache if task.deterministic else None
        self.workspaces = Workspaces(self.spec.base, self.spec.base_id, task.source_files)
        self.tests = tuple(sorted(task.tests_run))
        self.judge = Judge(tasks, task, grader, cache)
        self.prober = Prober(self._sandbox, task.instance_id, task.source_files, task.python_path, cache)
        self._open: Sandbox | None = None
        self._close_backend = close_backend

    def run(self, workspace: Workspace, tests: tuple[str, ...], trace: bool = True) -> Probe:
        """What `tests` show there; no lines without `trace`. Raises InfraFailure."""
        return self.prober.run(workspace.id, workspace.files, tests, trace)

    def grade(self, workspace: Workspace, shown: Spectrum | None = None) -> Judgement:
        """The outcome of a workspace, judged in a throw-away state.

        Where tests of the task are already `shown` to fail, and the task is deterministic, it is 0 without a run.
        Never 1: that needs the judgement itself. Running out of time shows nothing, judgements give more of it.
        """
        if self.task.deterministic and shown is not None and any(map(_surely_fails, shown.verdicts.values())):
            return Judgement(Reward(0.0), Spent(False, 0.0))
        return self.judge.grade(workspace.id, lambda: self.prober.at(workspace.files))

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        if self._close_backend:
            self.backend.close()

    def _sandbox(self) -> Sandbox:
        if self._open is None:
            self._open = self.backend.open(self.spec)
        return self._open


def _surely_fails(verdict: Verdict) -> bool:
    return verdict.result == "failed" and verdict.error != OUT_OF_TIME
