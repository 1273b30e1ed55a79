"""How a game is named when an environment is made, and which options it may have."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from refork.envs.forkable import BadInput
from refork.envs.graph_game.check import check_instance
from refork.envs.graph_game.files import read_game
from refork.envs.graph_game.game import Alignment, Clearing
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.seat import VIEWS


def open_instance(task: str | Path | Instance) -> Instance:
    """A text with a `/` is a folder. Raises BadInput."""
    if isinstance(task, Instance):
        check_instance(task)
        return task
    return make_instance(task) if isinstance(task, str) and "/" not in task else read_game(Path(task))


def check_options(view: str, alignment: str, clearing: str, noise: float) -> None:
    """Raises BadInput for an option that is none."""
    choices = (
        ("view", view, VIEWS),
        ("alignment", alignment, get_args(Alignment)),
        ("clearing", clearing, get_args(Clearing)),
    )
    for name, value, known in choices:
        if value not in known:
            raise BadInput(f"{name}={value!r} of a graph game: expected one of {', '.join(known)}")
    if not 0 <= noise < 1:
        raise BadInput(f"noise={noise!r} of a graph game: expected a share of demand, at least 0 and below 1")


def padded_sizes(instance: Instance, max_sites: int | None, max_nodes: int | None) -> tuple[int, int]:
    """Of sites and supply nodes, padded. Raises BadInput."""
    sizes = []
    for count, size, what in ((instance.sites, max_sites, "sites"), (instance.nodes, max_nodes, "nodes")):
        if size is not None and size < count:
            raise BadInput(
                f"max_{what}={size}: the game {instance.name!r} has {count} {what}; pad to at least that many"
            )
        sizes.append(count if size is None else size)
    return sizes[0], sizes[1]
