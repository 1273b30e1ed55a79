"""The map of a game at one moment: the demand graph below, the supply graph above it, the coupling between."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, Normalize
from refork.cluster.game_film import Film

FADED = "#c8cdd3"
LIFT = 1.35
"""How far the supply graph is drawn above the demand graph, which is one high."""


def draw_map(
    axis: Axes,
    game: Film,
    values: tuple[np.ndarray, np.ndarray],
    colors: Colormap,
    norm: Normalize,
    moment: int,
) -> None:
    """Both graphs at one moment; `values` of sites (N,) and nodes (M,) become colours where something is built."""
    places = _places(game)
    levels = (game.site_level[moment], game.node_level[moment])
    _edges(axis, places[0], game.instance.roads, "#8a929b", 0.8)
    _edges(axis, places[1], game.instance.links, "#8a929b", 0.8)
    _coupling(axis, game, places, levels)
    scale = min(1.0, (24 / game.instance.sites) ** 0.5)
    for place, level, value, marker in zip(places, levels, values, "os", strict=True):
        built = level > 0
        x, y = place.T
        axis.scatter(x[~built], y[~built], 16 * scale, "white", marker=marker, edgecolors="#8a929b", lw=0.8, zorder=3)
        axis.scatter(
            x[built],
            y[built],
            s=scale * (25 + 75 * level[built]),
            marker=marker,
            c=value[built],
            cmap=colors,
            norm=norm,
            edgecolors="#24292f",
            lw=0.7,
            zorder=4,
        )
    axis.text(-0.06, LIFT + 0.5, "supply", rotation=90, va="center", ha="right", fontsize=10)
    axis.text(-0.06, 0.5, "demand", rotation=90, va="center", ha="right", fontsize=10)
    axis.set_axis_off()


def _places(game: Film) -> tuple[np.ndarray, np.ndarray]:
    """(N, 2), (M, 2): each graph in a box one wide and one high, the supply graph lifted above."""
    sites = _boxed(game.instance.site_place, game.instance.sites)
    return sites, _boxed(game.instance.node_place, game.instance.nodes) + np.array([0, LIFT])


def _boxed(place: np.ndarray, count: int) -> np.ndarray:
    """Places (n, 2) stretched to [0, 1]; a circle where none is known."""
    if len(place) != count:
        angle = 2 * np.pi * np.arange(count) / count
        place = np.stack([np.cos(angle), np.sin(angle)], 1)
    low, high = place.min(0), place.max(0)
    return (place - low) / np.maximum(high - low, 1e-9)


def _edges(axis: Axes, place: np.ndarray, edges: np.ndarray, color: str, width: float) -> None:
    if len(edges):
        axis.add_collection(LineCollection(list(place[edges]), colors=color, linewidths=width, zorder=1))


def _coupling(
    axis: Axes, game: Film, places: tuple[np.ndarray, np.ndarray], levels: tuple[np.ndarray, np.ndarray]
) -> None:
    site, node = game.instance.pairs.T
    lines = np.stack([places[0][site], places[1][node]], 1)  # (P, 2 ends, 2)
    live = (levels[0][site] > 0) & (levels[1][node] > 0)
    axis.add_collection(LineCollection(list(lines[~live]), colors=FADED, linewidths=0.4, alpha=0.6, zorder=0))
    axis.add_collection(LineCollection(list(lines[live]), colors="#3b7dd8", linewidths=0.9, alpha=0.8, zorder=2))
