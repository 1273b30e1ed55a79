"""Metrics of an update on games."""

import pytest
from refork.replay.game_pack import LostGames
from refork.trainers.game_metrics import passed, summarise_games

from tests.replay.game_parts import HORIZON, played, request


def test_games_are_counted_and_paid() -> None:
    games = played([request("charging-regular-n4-0", 2), request("vaccine-regular-n6-0")])
    found = summarise_games([games, LostGames(("charging-regular-n4-0",), "died")])
    counts = {name: found[name] for name in ("trajectories", "steps", "steps_executed", "infra_errors", "searched")}
    rounds = 3 * HORIZON
    assert counts == {"trajectories": 4, "steps": rounds, "steps_executed": rounds, "infra_errors": 1, "searched": 0}
    assert found["welfare"] == pytest.approx(games.welfare.mean())
    assert found["welfare_per_site"] == pytest.approx((games.welfare / [4, 4, 6]).mean())
    assert found["payoff_demand"] + found["payoff_supply"] == pytest.approx(found["welfare"])
    assert found["passes"] == passed(games).mean() == (games.actions == 6).mean()


def test_without_a_game_only_counts_are_left() -> None:
    found = summarise_games([LostGames(("charging-regular-n4-0",), "died")])
    assert found == {"trajectories": 1, "steps": 0, "steps_executed": 0, "infra_errors": 1}
