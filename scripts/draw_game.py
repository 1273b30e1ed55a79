"""Draws a played game: `python -m refork.scripts.draw_game RUN TASK [--by HOW] [--out FILE.png]`.

Below, the demand graph (circles, roads); above it the supply graph (squares, links); between them the coupling, drawn
strong where both ends are built. Size is the level, colour the share of the built capacity that served somebody in
that round. Beside it, when which node was first built, and the payoffs against the bound of the welfare.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from cyclopts import App
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from refork.cluster.game_film import RECORDED, Film, film
from refork.scripts.cli import run_app
from refork.scripts.game_map import FADED, draw_map

SHARE = plt.get_cmap("RdYlGn")
WHEN = plt.get_cmap("viridis_r")

app = App(help=__doc__, result_action="return_value")


@app.default
def draw_game(
    run: Path,
    task: str,
    /,
    *,
    by: str = RECORDED,
    episode: int | None = None,
    attempt: int = 0,
    out: Path | None = None,
) -> int:
    """Draw a game of a run's kind as a picture.

    Parameters
    ----------
    run
        The folder of a run on games.
    task
        A game, e.g. charging-irregular-n20-17.
    by
        recorded: as the run last played it; trained: by its newest checkpoint, greedily; or the name of a heuristic.
    episode
        recorded: of that episode.
    attempt
        recorded: that one of the episode's games.
    out
        File of the picture; default: TASK-BY.png in the run's folder.
    """
    target = out or run / f"{task}-{by}.png"
    figure = picture(film(run, task, by, episode, attempt))
    figure.savefig(target, dpi=110)
    plt.close(figure)
    print(f"written to {target}")
    return 0


def picture(game: Film) -> Figure:
    """Four moments, when things were built, what was earned."""
    figure = plt.figure(figsize=(16, 9.5), layout="constrained")
    axes = figure.subplot_mosaic("AABBCC;AABBCC;DDEEFF;DDEEFF")
    rounds = len(game.own)
    moments = np.unique(np.ceil(rounds * np.arange(1, 5) / 4).astype(int)) - 1
    maps = [axes[name] for name in "ABCD"]
    for axis, moment in zip(maps, moments, strict=False):
        draw_map(axis, game, _share(game, moment), SHARE, Normalize(0, 1), moment)
        axis.set_title(f"after round {moment + 1}", fontsize=11)
    draw_map(axes["E"], game, _first_built(game), WHEN, Normalize(1, rounds), rounds - 1)
    axes["E"].set_title("round first built", fontsize=11)
    _earned(axes["F"], game)
    in_use = ScalarMappable(Normalize(0, 1), SHARE)
    figure.colorbar(in_use, ax=maps[-1], label="share of its capacity in use", aspect=30)
    when = ScalarMappable(Normalize(1, rounds), WHEN)
    figure.colorbar(when, ax=axes["E"], label="round", aspect=30, ticks=MaxNLocator(integer=True))
    name = game.instance.name
    figure.suptitle(f"{name}, played by {game.by}: {game.fraction:.3f} of the bound", fontsize=14)
    return figure


def _share(game: Film, moment: int) -> tuple[np.ndarray, np.ndarray]:
    """Part of the built capacity that served somebody in the round: of sites (N,), of nodes (M,)."""
    sites = game.served[moment] / np.maximum(game.site_level[moment] * game.instance.site_capacity, 1e-9)
    nodes = game.through[moment] / np.maximum(game.node_level[moment] * game.instance.node_capacity, 1e-9)
    return np.clip(sites, 0, 1), np.clip(nodes, 0, 1)


def _first_built(game: Film) -> tuple[np.ndarray, np.ndarray]:
    """Round, from 1, in which each site (N,) and node (M,) reached its first level."""
    return (game.site_level > 0).argmax(0) + 1, (game.node_level > 0).argmax(0) + 1


def _earned(axis: Axes, game: Film) -> None:
    rounds = np.arange(1, len(game.own) + 1)
    total = game.own.cumsum(0)
    axis.plot(rounds, total.sum(1), color="#24292f", lw=2, label="welfare")
    axis.plot(rounds, total[:, 0], color="#2a9d5c", label="demand operator")
    axis.plot(rounds, total[:, 1], color="#c2571a", label="supply operator")
    axis.axhline(game.bound, color="#24292f", ls=":", lw=1, label="bound of the welfare")
    axis.axhline(0, color=FADED, lw=0.8, zorder=0)
    axis.set(xlabel="round", ylabel="payoff so far", title="earned")
    axis.legend(frameon=False, fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    raise SystemExit(run_app(app))
