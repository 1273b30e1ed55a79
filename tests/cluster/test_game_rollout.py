"""Players of games: packs, weights of a version, heuristics; games lost with their player."""

import os
import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from refork.agents.registry import make_network
from refork.cluster.collector import LocalCollector
from refork.cluster.game_family import GameFamily
from refork.cluster.game_rollout import GamePlayer, GameSpec
from refork.cluster.game_tasks import GameSource
from refork.envs.forkable import BadInput
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES
from refork.replay.game_pack import GamePack, LostGames
from refork.replay.games import PlayConfig, PlayedGames
from refork.replay.player import GroupRequest
from refork.trainers.config import EnvConfig, JobConfig
from refork.trainers.loop import Loop, Stalled
from refork.trainers.make import make_trainer
from refork.trainers.sampler import TaskSampler

from tests.replay.game_parts import request
from tests.trainers.chain_run import Rows

OPTIONS: dict[str, Any] = {"sizes": [4], "instances": 2, "horizon": 5, "batch": 4}
TASKS = [f"{domain}-regular-n{n}-0" for domain in ("charging", "hydrogen", "vaccine") for n in (4, 6)]
WEIGHTS = make_network("cross_graph", (SITE_FEATURES, NODE_FEATURES), {}, 0).acting_weights()


def _spec(**options: Any) -> GameSpec:
    return GameSpec(GameSource(EnvConfig(options=OPTIONS | options)), "cross_graph")


def _by_game(played: Sequence[PlayedGames]) -> dict[tuple[str, int], np.ndarray]:
    return {(task, e.attempts[b]): e.own[:, b] for e in played for b, task in enumerate(e.tasks)}


def test_games_do_not_depend_on_how_they_are_packed() -> None:
    asked = [request(task, 2) for task in TASKS]
    alone, together = (LocalCollector(_spec(batch=n)).collect(asked, WEIGHTS, 0) for n in (1, 64))
    assert (len(alone), len(together)) == (6, 1)
    first, second = _by_game(alone), _by_game(together)
    assert first.keys() == second.keys()
    for game, own in first.items():
        np.testing.assert_allclose(own, second[game], atol=1e-5)


def test_what_is_asked_for_is_played() -> None:
    collector = LocalCollector(_spec())
    (rule,) = collector.collect([request(TASKS[0])], WEIGHTS, 3, PlayConfig("one_hop_greedy"))
    (baseline,) = collector.collect([request(TASKS[0])], WEIGHTS, 3, baseline="one_hop_greedy")
    assert rule.behaviour == baseline.behaviour == "one_hop_greedy"
    assert (rule.actions == baseline.actions).all()
    (played,) = collector.collect([request(TASKS[0])], WEIGHTS, 3)
    assert (played.behaviour, played.version) == ("policy", 3)
    (best,) = collector.collect([request(TASKS[0], greedy=True)], WEIGHTS, 3)
    assert (best.log_probs >= played.log_probs - 1e-6)[0].all()  # the same first state, the most probable moves
    with pytest.raises(BadInput, match="no heuristic 'luck'; there are: pass, random"):
        collector.collect([request(TASKS[0])], WEIGHTS, 3, PlayConfig("luck"))


class _Losing:
    """Loses every game of some tasks."""

    def __init__(self, *tasks: str) -> None:
        self.inner, self.tasks = LocalCollector(_spec(batch=1)), tasks

    def collect(self, requests: Sequence[GroupRequest], *rest: Any) -> list[Any]:
        played = self.inner.collect(requests, *rest)
        return [LostGames(e.tasks, "actor died") if e.tasks[0] in self.tasks else e for e in played]

    def close(self) -> None:
        pass


def _loop(tasks: Sequence[str], collector: Any) -> tuple[Loop, Rows]:
    trainer = {"kind": "pmd", "updates": 6, "tasks_per_update": 3, "group": 1, "quarantine": 2, "stall": 3}
    job = JobConfig.model_validate(
        {
            "env": {"id": "refork/GraphGame-v0", "options": OPTIONS},
            "agent": {"kind": "cross_graph"},
            "trainer": trainer,
        }
    )
    rows, family = Rows(), GameFamily(job)
    sampler = TaskSampler(tasks, job.seed, job.trainer.quarantine)
    made = make_trainer(job, family.feature_names)
    return Loop(job, made, sampler, collector, rows, rows, summarise=family.summarise), rows


def test_lost_games_are_counted_and_their_instance_set_aside() -> None:
    loop, rows = _loop(TASKS[::2], _Losing(TASKS[0]))
    with pytest.warns(UserWarning, match=f"task {TASKS[0]} quarantined: actor died"):
        loop.run()
    assert [row["infra_errors"] for _, row in rows.rows] == [1, 1, 0, 0, 0, 0]
    assert [row["trajectories"] for _, row in rows.rows] == [3] * 6
    assert "skipped_update" in rows.rows[0][1]


def test_a_run_in_which_no_game_comes_back_stalls_loudly() -> None:
    many = [f"charging-regular-n4-{i}" for i in range(30)]
    loop, rows = _loop(many, _Losing(*many))
    before = loop.trainer.weights()
    with pytest.raises(Stalled, match=r"no rollout was judged in 3 updates in a row; .*actor died"):
        loop.run()
    assert len(rows.rows) == 2
    assert all((before[name] == value).all() for name, value in loop.trainer.weights().items())


class Fatal(GamePlayer):
    """Its process dies when the second task is in a pack."""

    def play(self, unit: GamePack, *rest: Any, **more: Any) -> PlayedGames:
        if TASKS[2] in unit.tasks:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().play(unit, *rest, **more)


class FatalSpec(GameSpec):
    def player(self) -> type[GamePlayer]:
        return Fatal


@pytest.mark.ray
def test_games_lost_with_their_actor_are_infra_and_the_rest_is_played() -> None:
    from refork.cluster.actors import PoolLimits, RayCollector
    from refork.cluster.local_ray import LocalRay
    from refork.cluster.resources import Need

    spec = _spec(batch=2)
    asked = [request(task, 2) for task in TASKS[::2]]
    pool = RayCollector(
        FatalSpec(spec.source, spec.agent), Need(2), LocalRay.start(2), limits=PoolLimits(backoff_s=0.01)
    )
    try:
        first, lost, last = pool.collect(asked, WEIGHTS, 0)
    finally:
        pool.close()
    here = LocalCollector(spec).collect(asked, WEIGHTS, 0)
    assert (first.own == here[0].own).all()
    assert (last.own == here[2].own).all()
    assert lost.tasks == (TASKS[2],) * 2
    assert lost.reason.startswith("rollout actor lost: died")
