"""The games of a run on disk: one compressed file an update, holding what it takes to play each of them again.

Observations are left out: moves and noise seeds bring them back.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.game_pack import LostGames
from refork.replay.games import PlayedGames
from refork.replay.update_files import UpdateFiles


@dataclass(frozen=True)
class StoredGame:
    """One game of a run."""

    task: str
    update: int
    episode: int
    attempt: int
    noise_seed: int
    behaviour: str
    pass_moves: tuple[int, int]
    """The moves that passed: numbers of sites and nodes in the batch it was played in."""
    actions: np.ndarray
    """(T, 2), int64."""
    own: np.ndarray
    """(T, 2): payoffs."""


class GameStore(UpdateFiles):
    """The `trajectories/` folder of a run on games."""

    suffix = ".npz"

    def write(self, update: int, experience: Sequence[PlayedGames | LostGames]) -> Path:
        """Keep what update number `update` collected, replacing what was there. Raises OSError (disk full)."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {}
        heads = []
        for number, played in enumerate(experience):
            heads.append(_head(played))
            if isinstance(played, PlayedGames):
                arrays[f"actions{number}"] = played.actions.astype(np.int32)
                arrays[f"own{number}"] = played.own
        np.savez_compressed(content, heads=np.array(json.dumps(heads)), **arrays)
        return self.write_whole(update, content.getvalue())

    def read(self, update: int) -> list[StoredGame]:
        """The games of an update, without those that were lost. Raises BadInput when they cannot be read."""
        path = self.path(update)
        try:
            with np.load(path) as stored:
                heads = json.loads(str(stored["heads"]))
                arrays = {name: stored[name] for name in stored.files}
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise BadInput(f"{path}: cannot be read ({error}); remove the file to go on") from error
        packs = enumerate(heads)
        return [
            StoredGame(
                task,
                update,
                head["episode"],
                head["attempts"][b],
                head["noise_seeds"][b],
                head["behaviour"],
                tuple(head["pass_moves"]),
                arrays[f"actions{number}"][:, b].astype(np.int64),
                arrays[f"own{number}"][:, b],
            )
            for number, head in packs
            if "lost" not in head
            for b, task in enumerate(head["tasks"])
        ]

    def find(self, task: str, episode: int | None = None, attempt: int = 0) -> StoredGame:
        """The newest game of `task` that fits. Raises BadInput saying what there is instead."""
        tasks: set[str] = set()
        for update in reversed(self.updates()):
            for game in self.read(update):
                tasks.add(game.task)
                if game.task == task and episode in (None, game.episode) and game.attempt == attempt:
                    return game
        known = ", ".join(sorted(tasks)[:5]) or "none"
        which = f"{task}, attempt {attempt}" + ("" if episode is None else f", episode {episode}")
        raise BadInput(f"{self.folder}: no game of {which}; recorded: {known} ({len(tasks)} in all)")


def _head(played: PlayedGames | LostGames) -> dict[str, Any]:
    if isinstance(played, LostGames):
        return {"tasks": played.tasks, "lost": played.reason}
    return {
        "tasks": played.tasks,
        "episode": played.episode,
        "attempts": played.attempts,
        "noise_seeds": played.noise_seeds,
        "version": played.version,
        "behaviour": played.behaviour,
        "pass_moves": [mask.shape[2] - 1 for mask in played.masks],
    }
