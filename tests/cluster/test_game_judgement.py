"""What an evaluation of games says: exact fractions, cells, labels; bounds solved once."""

import json
from pathlib import Path

import pytest
from refork.cluster import game_bounds
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_evaluation import best_before
from refork.cluster.game_judgement import GameResult, judge_games, results, unserved_share
from refork.cluster.game_regret import mean_regret
from refork.cluster.game_tables import GameReport
from refork.cluster.game_tasks import GameSource
from refork.envs.graph_game.bound import upper_bound
from refork.envs.graph_game.coupling import CouplingStats
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.replay.game_pack import GamePack, LostGames
from refork.replay.game_player import Ruled, draw, play
from refork.replay.games import PlayedGames
from refork.trainers.config import EnvConfig

from tests.replay.game_parts import HORIZON, request

A, B = "charging-regular-n4-0", "vaccine-irregular-n5-1"
SOURCE = GameSource(EnvConfig(options={"horizon": HORIZON, "noise": 0.3, "sizes": [4]}))


def _played(rule: str, *tasks: str, attempts: int = 1) -> PlayedGames:
    unit = GamePack(tuple(request(task, attempts) for task in tasks))
    draws = draw(unit, HORIZON)
    games = SOURCE.game(unit.tasks, draws.noise_seeds)
    return play(games, unit, Ruled(HEURISTICS[rule](0).moves), draws, 0, rule)


def test_fractions_are_of_the_bound_under_the_demand_that_was_drawn(tmp_path: Path) -> None:
    played = _played("coupled_greedy", A, B)
    found = results(played, SOURCE, BoundCache(tmp_path))
    for b, (result, sites) in enumerate(zip(found, (4, 5), strict=True)):
        demand = SOURCE.game([played.tasks[b]], [played.noise_seeds[b]]).demand[:, 0]
        assert demand.shape == (HORIZON, sites)
        bound = upper_bound(SOURCE.instance(played.tasks[b]), demand)
        assert result.fraction == pytest.approx(played.welfare[b] / bound)
        assert result.fraction <= 1.0
    assert [r.cell for r in found] == ["charging/regular/4", "vaccine/irregular/5"]


def test_a_bound_is_solved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = BoundCache(tmp_path).upper(SOURCE.instance(A))
    monkeypatch.setattr(game_bounds, "upper_bound", lambda *_: pytest.fail("solved again"))
    assert BoundCache(tmp_path).upper(SOURCE.instance(A)) == first


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"upper": NaN}', '{"game": "a"}'])
def test_a_damaged_bound_is_solved_again(tmp_path: Path, damage: str) -> None:
    first = BoundCache(tmp_path).upper(SOURCE.instance(A))
    (kept,) = tmp_path.iterdir()
    kept.write_text(damage)
    assert BoundCache(tmp_path).upper(SOURCE.instance(A)) == first
    assert '"upper"' in kept.read_text()


def test_passing_earns_nothing_and_is_stagnation(tmp_path: Path) -> None:
    cache = BoundCache(tmp_path)
    judged = judge_games("pass", "rule", [_played("pass", A, B)], lambda p: results(p, SOURCE, cache), {})
    assert judged.overall is not None
    assert (judged.overall.fraction.estimate, judged.overall.passes, judged.overall.failure) == (0, 1, "stagnation")


def test_capacity_that_serves_nobody_is_seen() -> None:
    built = _played("own_greedy", A, B)
    assert (unserved_share(built) > 0.1).all()
    assert (unserved_share(_played("pass", A)) == 0).all()


def _result(task: str, cell: str, fraction: float) -> GameResult:
    return GameResult(task, cell, fraction, (2.0, 1.0), 0.4, 0.1)


def test_instances_are_the_units_and_cells_the_strata() -> None:
    found = [
        _result("a", "x/y/4", 0.2),
        _result("a", "x/y/4", 0.4),
        _result("b", "x/y/4", 0.7),
        _result("c", "x/y/8", 1),
    ]
    judged = judge_games("p", "sampled", [_played("pass", A)], lambda _: found, {"": 0.5, "x/y/8": 2.5})
    assert judged.overall is not None
    assert judged.overall.instances == 3
    assert judged.by_cell["x/y/4"].fraction.estimate == pytest.approx((0.3 + 0.7) / 2)
    assert judged.by_cell["x/y/8"].failure == "collapse"
    assert judged.overall.failure == "none"
    low, middle, high = json.loads(json.dumps(judged.to_json()))["by_cell"]["x/y/4"]["fraction"]
    assert [low, middle, high] == pytest.approx([0.3, 0.5, 0.7])


def test_what_was_not_played_or_means_nothing_is_listed() -> None:
    found = [_result("a", "x/y/4", float("nan"))]
    judged = judge_games("p", "greedy", [_played("pass", A), LostGames((B,), "died")], lambda _: found, {})
    assert judged.overall is None
    assert judged.lost == ("a: nothing is worth building there", f"{B}: died")
    report = GameReport([judged], {"x/y/4": [CouplingStats(0.5, 0.25), CouplingStats(0.7, 0.0)]})
    assert report.notes()[1] == f"not judged: p greedy {B}: died"
    tables = report.tables()
    assert len(tables) == 2
    assert [list(column.cells) for column in tables[1].columns] == [["x/y/4"], ["2"], ["0.60"], ["0.12"]]


def test_regret_is_bounded_from_both_sides(tmp_path: Path) -> None:
    found = mean_regret([_played("pass", A)], SOURCE, BoundCache(tmp_path))
    assert found["supply"]["at_most"] == pytest.approx(0, abs=1e-9)  # nothing can be sold while the other never builds
    greedy = mean_regret([_played("coupled_greedy", A)], SOURCE, BoundCache(tmp_path))
    for regret in greedy.values():
        assert 0 <= regret["at_least"] <= regret["at_most"] + 1e-9


def test_the_best_earlier_evaluation_is_found_by_cell() -> None:
    name = "validation/fraction_greedy"
    rows = [{"step": 1, name: 0.3, f"{name}/c": 0.9}, {"step": 2}, {"step": 3, name: 0.2, f"{name}/c": None}]
    assert best_before(rows) == {"": 0.3, "c": 0.9}
