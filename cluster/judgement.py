"""What an evaluation says about one policy: shares with intervals over tasks, pass@k, packages, what was not judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from refork.envs.forkable import InfraError, Timeout
from refork.replay.trajectory import TaskExperience
from refork.trainers.stats import Interval, bootstrap, pass_at_k


@dataclass(frozen=True)
class Unjudged:
    """An attempt the machinery failed; it counts neither as success nor as failure."""

    task: str
    attempt: int
    reason: str


@dataclass(frozen=True)
class Judgement:
    """One policy on one set of tasks."""

    policy: str
    mode: str
    """sampled or greedy."""
    resolved: Interval | None
    """Mean over tasks of each task's share, bootstrapped over tasks; None when nothing was judged."""
    pass_at: dict[int, float]
    """Unbiased pass@k, mean over the tasks with at least k judged attempts."""
    by_package: dict[str, Interval]
    tasks: int
    """Tasks with at least one judged attempt."""
    attempts: int
    """Judged attempts."""
    unjudged: tuple[Unjudged, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON values; intervals as estimate, low, high."""
        plain = dict(vars(self))
        plain["resolved"] = vars(self.resolved) if self.resolved else None
        plain["by_package"] = {name: vars(interval) for name, interval in self.by_package.items()}
        plain["pass_at"] = {str(k): value for k, value in self.pass_at.items()}
        plain["unjudged"] = [vars(u) for u in self.unjudged]
        return plain


def judge(
    policy: str,
    mode: str,
    groups: Sequence[TaskExperience],
    package: Callable[[str], str],
    pass_k: Sequence[int] = (),
) -> Judgement:
    """Read a judgement off groups of main rollouts, one group a task."""
    found = {g.task: [t.value >= 1.0 for t in g.mains if t.value is not None] for g in groups}
    judged = {task: attempts for task, attempts in found.items() if attempts}
    shares = {task: sum(attempts) / len(attempts) for task, attempts in judged.items()}
    by_package: dict[str, list[float]] = defaultdict(list)
    for task, share in shares.items():
        by_package[package(task)].append(share)
    return Judgement(
        policy,
        mode,
        bootstrap(list(shares.values())) if shares else None,
        {k: value for k in pass_k if (value := _pass_at(list(judged.values()), k)) is not None},
        {name: bootstrap(own) for name, own in sorted(by_package.items())},
        len(judged),
        sum(len(attempts) for attempts in judged.values()),
        tuple(_unjudged(groups)),
    )


def _pass_at(judged: Sequence[Sequence[bool]], k: int) -> float | None:
    values = [pass_at_k(len(attempts), sum(attempts), k) for attempts in judged if len(attempts) >= k]
    return sum(values) / len(values) if values else None


def _unjudged(groups: Sequence[TaskExperience]) -> list[Unjudged]:
    found = []
    for group in groups:
        for t in group.mains:
            match t.outcome:
                case InfraError(reason):
                    found.append(Unjudged(group.task, t.attempt, reason))
                case Timeout(where):
                    found.append(Unjudged(group.task, t.attempt, f"timeout in {where}"))
    return found
