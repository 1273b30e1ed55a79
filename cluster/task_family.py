"""The family in which one agent plays tasks one at a time: the chain and software-engineering tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from refork.cluster.collector import GroupCollector
from refork.cluster.evaluation import PolicyEvaluator, requests, spread_over_packages
from refork.cluster.family import Contest, Contestant
from refork.cluster.judgement import judge
from refork.cluster.judgement_tables import TaskReport
from refork.cluster.resources import PRIVATE
from refork.cluster.rollout import RolloutSpec
from refork.cluster.tasks import task_source
from refork.envs.forkable import BadInput
from refork.envs.swe.sandbox.opening import check_backend
from refork.envs.swe.tasks import Split
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import JobConfig
from refork.trainers.metrics import summarise


class TaskFamily:
    """Judged by the share of tasks resolved."""

    experience: ClassVar[str] = "tasks"

    def __init__(self, job: JobConfig) -> None:
        self._job = job
        if job.env.id == "refork/RepairMenu-v0" and job.cluster.address == PRIVATE:  # else other hosts have the key
            check_backend(job.env.backend)
        self.source = task_source(job.env)
        self.spec = RolloutSpec(job.env, job.agent.kind)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.source.feature_names

    def names(self, split: Split) -> list[str]:
        return self.source.names(split)

    def store(self, folder: Path) -> TrajectoryStore:
        return TrajectoryStore(folder)

    def summarise(self, experience: Sequence[TaskExperience]) -> dict[str, float]:
        return summarise(experience)

    def headline(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Resolved share, forks, cache hits."""
        parts = []
        if judged := [row["resolved"] for row in rows if "resolved" in row]:
            parts.append(f"resolved {sum(judged) / len(judged):.2f}")
        parts.append(f"forks {_sum(rows, 'branches'):.0f}")
        if steps := _sum(rows, "steps"):
            parts.append(f"cache hits {1 - _sum(rows, 'steps_executed') / steps:.2f}")
        return parts

    def evaluator(self, collector: GroupCollector) -> PolicyEvaluator:
        tasks = self._chosen("validation")
        if not tasks:
            raise BadInput(
                "evaluate.every: there are no validation tasks; set it to 0 or choose env.validation packages"
            )
        return PolicyEvaluator(collector, tasks, self._job.seed, self._job.evaluate.attempts)

    def judge(self, contest: Contest) -> TaskReport:
        """The trained policy, and with `baselines` the untrained and the environment's own."""
        if contest.forks:
            raise BadInput("--forks: is for games; for a task, `refork fork` goes back to one decision")
        tasks = self._chosen(contest.split)
        if not tasks:
            raise BadInput(f"there are no {contest.split} tasks; choose another --split or build more tasks")
        asked = self._job.evaluate
        judgements = []
        for player in self._players(contest):
            contest.say(f"playing {len(tasks)} {contest.split} tasks: {player.name}, {player.mode}")
            groups = contest.collector.collect(
                requests(tasks, self._job.seed, asked.attempts, player.mode == "greedy"),
                player.weights,
                player.version,
                baseline=player.baseline,
                record=False,
            )
            pass_k = asked.pass_k if player.mode == "sampled" else ()
            judgements.append(judge(player.name, player.mode, groups, self.source.package, pass_k))
        return TaskReport(judgements, asked.pass_k)

    def close(self) -> None:
        self.source.close()

    def _chosen(self, split: Split) -> list[str]:
        return spread_over_packages(self.names(split), self.source.package, self._job.evaluate.tasks)

    def _players(self, contest: Contest) -> Iterator[Contestant]:
        for mode in ("sampled", "greedy"):
            yield Contestant("trained", mode, contest.trained, 1)
        if not contest.baselines:
            return
        for mode in ("sampled", "greedy"):
            yield Contestant("untrained", mode, contest.untrained, 0)
        for name, baseline in self.source.baselines().items():
            yield Contestant(name, baseline.mode, contest.untrained, 0, name)


def _sum(rows: Sequence[Mapping[str, float]], name: str) -> float:
    return sum(row.get(name, 0.0) for row in rows)
