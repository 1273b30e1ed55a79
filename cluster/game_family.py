"""The family in which two operators play coupled graph games, many in step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from refork.cluster.collector import GroupCollector
from refork.cluster.evaluation import requests, spread_over_packages
from refork.cluster.family import Contest, Contestant
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_evaluation import GameEvaluator, best_before
from refork.cluster.game_judgement import GameJudgement, GameResult, judge_games, results
from refork.cluster.game_regret import mean_regret
from refork.cluster.game_rollout import GameSpec
from refork.cluster.game_tables import GameReport
from refork.cluster.game_tasks import GameSource
from refork.envs.forkable import BadInput
from refork.envs.graph_game.coupling import CouplingStats, coupling_stats
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES
from refork.envs.swe.tasks import Split
from refork.replay.game_pack import LostGames
from refork.replay.game_store import GameStore
from refork.replay.games import ImproveConfig, PlayConfig, PlayedGames
from refork.trainers.config import JobConfig
from refork.trainers.game_metrics import summarise_games


class GameFamily:
    """Judged by the fraction of a bound on the welfare."""

    experience: ClassVar[str] = "games"

    def __init__(self, job: JobConfig) -> None:
        self._job = job
        self.source = GameSource(job.env)
        self.spec = GameSpec(self.source, job.agent.kind)
        self._bounds = BoundCache()

    @property
    def feature_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return SITE_FEATURES, NODE_FEATURES

    def names(self, split: Split) -> list[str]:
        return self.source.names(split)

    def store(self, folder: Path) -> GameStore:
        return GameStore(folder)

    def summarise(self, experience: Sequence[PlayedGames | LostGames]) -> dict[str, float]:
        return summarise_games(experience)

    def headline(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Welfare per site, share of passes, latest validation fraction."""
        parts = []
        for name, shown in (("welfare_per_site", "welfare/site"), ("passes", "passes")):
            if values := [row[name] for row in rows if name in row]:
                parts.append(f"{shown} {sum(values) / len(values):.2f}")
        if judged := [row["validation/fraction_greedy"] for row in rows if "validation/fraction_greedy" in row]:
            parts.append(f"of the bound {judged[-1]:.3f}")
        return parts

    def evaluator(self, collector: GroupCollector) -> GameEvaluator:
        tasks = self._chosen("validation")
        if not tasks:
            raise BadInput("evaluate.every: there are no validation games; set it to 0 or env.options.validation above")
        return GameEvaluator(collector, tasks, self._job.seed, self._job.evaluate.attempts, self._read)

    def judge(self, contest: Contest) -> GameReport:
        """The trained policy; with `forks` also that searching; with `baselines` the untrained and every heuristic."""
        tasks = self._chosen(contest.split)
        if not tasks:
            raise BadInput(f"there are no {contest.split} games; choose another --split or set env.options")
        best = best_before(contest.history)
        judgements = []
        for player in _players(contest):
            contest.say(f"playing {len(tasks)} {contest.split} games: {player.name}, {player.mode}")
            judgements.append(self._judged(player, tasks, contest.collector, best if player.version else {}))
        return GameReport(judgements, self._couplings(tasks))

    def close(self) -> None:
        """Nothing is held."""

    def _couplings(self, tasks: Sequence[str]) -> dict[str, list[CouplingStats]]:
        found: dict[str, list[CouplingStats]] = defaultdict(list)
        for task in tasks:
            game = self.source.instance(task)
            found[self.source.cell(task)].append(coupling_stats(game.pairs, game.sites, game.nodes))
        return found

    def _judged(
        self, player: Contestant, tasks: Sequence[str], collector: GroupCollector, best: Mapping[str, float]
    ) -> GameJudgement:
        attempts = self._job.evaluate.attempts if player.mode == "sampled" or player.baseline == "random" else 1
        played = collector.collect(
            requests(tasks, self._job.seed, attempts, player.mode in ("greedy", "forks")),
            player.weights,
            player.version,
            player.how,
            player.baseline,
            record=False,
        )
        judged = judge_games(player.name, player.mode, played, self._read, best)
        if player.mode == "greedy" and player.version:
            judged = replace(judged, regret=mean_regret(played, self.source, self._bounds))
        return judged

    def _read(self, played: PlayedGames) -> list[GameResult]:
        return results(played, self.source, self._bounds)

    def _chosen(self, split: Split) -> list[str]:
        return spread_over_packages(self.names(split), self.source.cell, self._job.evaluate.tasks)


def _players(contest: Contest) -> Iterator[Contestant]:
    for mode in ("sampled", "greedy"):
        yield Contestant("trained", mode, contest.trained, 1)
    if contest.forks:
        how = PlayConfig(improve=ImproveConfig(contest.forks))
        yield Contestant("trained", "forks", contest.trained, 1, how=how)
    if not contest.baselines:
        return
    for mode in ("sampled", "greedy"):
        yield Contestant("untrained", mode, contest.untrained, 0)
    for name in HEURISTICS:
        yield Contestant(name, "rule", contest.untrained, 0, name)
