"""The games of a run: generated ones, numbered apart by split, or a user's own folders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import get_args

from refork.cluster.env_options import env_options
from refork.cluster.game_options import MOST, GameOptions
from refork.envs.forkable import BadInput
from refork.envs.graph_game.files import read_game
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance, parse_name
from refork.envs.graph_game.instance import Instance
from refork.envs.swe.tasks import Split
from refork.trainers.config import EnvConfig

FIRST: dict[Split, int] = {"train": 0, "validation": MOST, "held_out": 2 * MOST}
"""Number of a split's first instance."""


class GameSource:
    """Names, instances and batches of games."""

    def __init__(self, env: EnvConfig) -> None:
        """Raises BadInput for options that games do not have, and for what is wrong with a user's own games."""
        self.options = env_options(GameOptions, env.options)
        self._own = None if env.tasks is None else _OwnGames(env, self.options)
        if self._own is None:
            _refuse_splits(env)
        if env.backend != "overlay" or not env.cache:
            raise BadInput("env.backend, env.cache: are for software tasks; a game has neither")
        self._env = env
        self._instance = lru_cache(4096)(self._make)

    def __reduce__(self) -> tuple[type[GameSource], tuple[EnvConfig]]:
        """Sent to an actor as its settings alone."""
        return GameSource, (self._env,)

    def names(self, split: Split) -> list[str]:
        """Sorted by domain, coupling, size and number."""
        if self._own:
            return self._own.names(split)
        o = self.options
        sizes = o.sizes if split == "train" else o.evaluate_sizes or o.sizes
        count = {"train": o.instances, "validation": o.validation, "held_out": o.held_out}[split]
        numbers = range(FIRST[split], FIRST[split] + count)
        return [f"{d}-{c}-n{n}-{i}" for d in o.domains for c in o.couplings for n in sizes for i in numbers]

    def instance(self, task: str) -> Instance:
        """Raises BadInput for what is no name of a game."""
        return self._instance(task)

    def size(self, task: str) -> int:
        """Number of sites."""
        return self.instance(task).sites if self._own else parse_name(task).size

    def cell(self, task: str) -> str:
        """What results are grouped by: domain/coupling/size."""
        if not self._own:
            return parse_name(task).cell
        instance = self.instance(task)
        return f"{instance.domain}/own/{instance.sites}"

    def game(self, tasks: Sequence[str], noise_seeds: Sequence[int]) -> Game:
        """These games in step. Raises BadInput when their horizons differ."""
        instances = [self.instance(task) for task in tasks]
        for instance in instances:
            if instance.horizon != instances[0].horizon:
                raise BadInput(
                    f"{instance.name} has {instance.horizon} rounds, {instances[0].name} {instances[0].horizon}: "
                    "games of one run must have the same horizon"
                )
        o = self.options
        return Game(instances, noise=o.noise, noise_seeds=noise_seeds, alignment=o.alignment, clearing=o.clearing)

    def _make(self, task: str) -> Instance:
        if self._own:
            return self._own.instance(task)
        return make_instance(task, horizon=self.options.horizon, rewired=self.options.rewired)


class _OwnGames:
    """A folder of games, or of one game; `env.validation` and `env.held_out` name those that are kept back."""

    def __init__(self, env: EnvConfig, options: GameOptions) -> None:
        assert env.tasks is not None
        if made := sorted(options.model_fields_set - {"noise", "alignment", "clearing", "batch"}):
            raise BadInput(f"env.options.{made[0]}: is for generated games; env.tasks holds the games to play")
        self._folders = _game_folders(env.tasks)
        self._listed: dict[Split, tuple[str, ...]] = {
            "train": env.train,
            "validation": env.validation,
            "held_out": env.held_out,
        }
        for split, names in self._listed.items():
            for name in names:
                if name not in self._folders:
                    raise BadInput(
                        f"env.{split}: no game {name!r} in {env.tasks}; there are: {', '.join(self._folders)}"
                    )

    def names(self, split: Split) -> list[str]:
        kept_back = {*self._listed["validation"], *self._listed["held_out"]}
        if split != "train":
            return sorted(self._listed[split])
        return sorted(self._listed["train"]) or [name for name in self._folders if name not in kept_back]

    def instance(self, task: str) -> Instance:
        if task not in self._folders:
            raise BadInput(f"no game {task!r}; there are: {', '.join(self._folders)}")
        return read_game(self._folders[task])


def _game_folders(folder: Path) -> dict[str, Path]:
    """Folders with a coupling by name: the folder itself, or those in it. Raises BadInput for none."""
    if not folder.is_dir():
        raise BadInput(f"env.tasks: there is no folder {folder}")
    found = [folder] if (folder / "coupling.csv").exists() else sorted(p.parent for p in folder.glob("*/coupling.csv"))
    if not found:
        raise BadInput(f"env.tasks: neither {folder} nor a folder in it holds a coupling.csv")
    return {path.resolve().name: path for path in found}


def _refuse_splits(env: EnvConfig) -> None:
    for split in get_args(Split):
        if getattr(env, split):
            raise BadInput(f"env.{split}: generated games are split by number; set env.options.{split} to how many")
