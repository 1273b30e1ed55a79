"""What an evaluation says about one policy on games: fractions of the bound by cell, what failed, what was not played.

fraction = W / UB: the welfare over what no policy can exceed. Passing earns exactly 0 in every game, so this is
(W - W_pass) / (UB - W_pass).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_tasks import GameSource
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES
from refork.replay.game_pack import LostGames
from refork.replay.games import PlayedGames
from refork.trainers.failures import Failure, Signs, failure
from refork.trainers.game_metrics import passed
from refork.trainers.stats import Interval, iqm, stratified_bootstrap

WORTHLESS = 1e-9
"""A bound below it: nothing is worth building there, and a fraction means nothing."""


@dataclass(frozen=True)
class GameResult:
    """One game."""

    task: str
    cell: str
    fraction: float
    """NaN where nothing is worth building."""
    own: tuple[float, float]
    passes: float
    unserved: float
    """Share of the built capacity that served nobody; 0 where nothing was built."""


@dataclass(frozen=True)
class CellJudgement:
    """One policy on the games of one cell, or on all."""

    fraction: Interval
    """Interquartile mean over instances, each the mean over its games."""
    instances: int
    own: tuple[float, float]
    """Mean payoffs of demand and supply."""
    passes: float
    unserved: float
    failure: Failure


@dataclass(frozen=True)
class GameJudgement:
    """One policy on one set of games."""

    policy: str
    mode: str
    """sampled, greedy, forks, or rule."""
    overall: CellJudgement | None
    """None when nothing was played."""
    by_cell: dict[str, CellJudgement]
    lost: tuple[str, ...]
    """Games the machinery failed, and those with nothing worth building, with the reason."""
    regret: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON values; `fraction` by cell as [low, iqm, high]."""
        cells = {name: vars(cell) | {"fraction": _triple(cell.fraction)} for name, cell in self.by_cell.items()}
        overall = None if self.overall is None else vars(self.overall) | {"fraction": _triple(self.overall.fraction)}
        return {**vars(self), "overall": overall, "by_cell": cells}


def _triple(interval: Interval) -> list[float]:
    return [interval.low, interval.estimate, interval.high]


def results(played: PlayedGames, source: GameSource, bounds: BoundCache) -> list[GameResult]:
    """Each game against its bound, under the demand that it was played with."""
    drawn = source.game(played.tasks, played.noise_seeds).demand if source.options.noise else None
    passes, unserved = passed(played).mean((0, 2)), unserved_share(played)
    own = played.own.sum(0)  # (B, 2)
    found = []
    for b, task in enumerate(played.tasks):
        instance = source.instance(task)
        upper = bounds.upper(instance, None if drawn is None else drawn[:, b, : instance.sites])
        fraction = float(own[b].sum() / upper) if upper > WORTHLESS else float("nan")
        payoffs = (float(own[b, 0]), float(own[b, 1]))
        found.append(GameResult(task, source.cell(task), fraction, payoffs, float(passes[b]), float(unserved[b])))
    return found


def unserved_share(played: PlayedGames) -> np.ndarray:
    """(B,): of the capacity built, over all rounds but the last, the share that served nobody."""
    idle = served = np.zeros(len(played.tasks))
    for features, names, used in (
        (played.site, SITE_FEATURES, "served"),
        (played.node, NODE_FEATURES, "through"),
    ):
        idle = idle + features[..., names.index("idle")].sum((0, 2))
        served = served + features[..., names.index(used)].sum((0, 2))
    built = idle + served
    return np.divide(idle, built, out=np.zeros_like(built), where=built > 0)


def judge_games(
    policy: str,
    mode: str,
    experience: Sequence[PlayedGames | LostGames],
    read: Callable[[PlayedGames], list[GameResult]],
    best_before: Mapping[str, float],
) -> GameJudgement:
    """`best_before`: best fraction of earlier evaluations by cell, and over all under ''."""
    everything = [r for e in experience if isinstance(e, PlayedGames) for r in read(e)]
    lost = [f"{task}: {e.reason}" for e in experience if isinstance(e, LostGames) for task in e.tasks]
    lost += [f"{r.task}: nothing is worth building there" for r in everything if np.isnan(r.fraction)]
    usable = [r for r in everything if not np.isnan(r.fraction)]
    cells: dict[str, list[GameResult]] = defaultdict(list)
    for result in usable:
        cells[result.cell].append(result)
    by_cell = {name: _judge([own], best_before.get(name)) for name, own in sorted(cells.items())}
    overall = _judge(list(cells.values()), best_before.get("")) if cells else None
    return GameJudgement(policy, mode, overall, by_cell, tuple(sorted(set(lost))))


def _judge(strata: Sequence[Sequence[GameResult]], best_before: float | None) -> CellJudgement:
    everything = [r for stratum in strata for r in stratum]
    per_instance = [_by_instance(stratum) for stratum in strata]
    finite = all(np.isfinite(values).all() for values in per_instance)
    nan = float("nan")
    fraction = stratified_bootstrap(per_instance, statistic=iqm) if finite else Interval(nan, nan, nan)
    passes, unserved = (float(np.mean([getattr(r, name) for r in everything])) for name in ("passes", "unserved"))
    own = np.mean([r.own for r in everything], 0)
    label = failure(Signs(fraction.estimate, passes, unserved, best_before))
    count = sum(len(values) for values in per_instance)
    return CellJudgement(fraction, count, (float(own[0]), float(own[1])), passes, unserved, label)


def _by_instance(found: Sequence[GameResult]) -> np.ndarray:
    """Mean fraction of each instance."""
    values: dict[str, list[float]] = defaultdict(list)
    for result in found:
        values[result.task].append(result.fraction)
    return np.array([np.mean(own) for own in values.values()])
