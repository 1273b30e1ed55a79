"""What an update's games were, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.replay.game_pack import LostGames
from refork.replay.games import PlayedGames


def summarise_games(experience: Sequence[PlayedGames | LostGames]) -> dict[str, float]:
    """Metrics by name. Payoffs are per game; those over played games are left out when none was."""
    played = [e for e in experience if isinstance(e, PlayedGames)]
    games = sum(len(e.tasks) for e in played)
    lost = sum(len(e.tasks) for e in experience if isinstance(e, LostGames))
    rounds = sum(e.actions.shape[0] * e.actions.shape[1] for e in played)
    counted = {"trajectories": games + lost, "steps": rounds, "steps_executed": rounds, "infra_errors": lost}
    metrics = {name: float(value) for name, value in counted.items()}
    if games:
        own = np.concatenate([e.own.sum(0) for e in played])  # (games, 2)
        sites = np.concatenate([e.topology.site_mask.sum(1) for e in played])
        metrics |= {
            "welfare": float(own.sum(1).mean()),
            "welfare_per_site": float((own.sum(1) / sites).mean()),
            "payoff_demand": float(own[:, 0].mean()),
            "payoff_supply": float(own[:, 1].mean()),
            "passes": float(np.concatenate([passed(e).ravel() for e in played]).mean()),
            "searched": float(sum((e.teacher >= 0).all(-1).sum() for e in played if e.teacher is not None) / rounds),
        }
    return metrics


def passed(games: PlayedGames) -> np.ndarray:
    """(T, B, 2), bool: which moves were passes."""
    return games.actions == [mask.shape[2] - 1 for mask in games.masks]
