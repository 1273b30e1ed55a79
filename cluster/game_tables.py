"""Judgements of games as a report: JSON, tables, what was not played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from refork.cluster.game_judgement import CellJudgement, GameJudgement
from refork.envs.graph_game.coupling import CouplingStats
from rich.table import Table

CELLS_A_TABLE = 4


@dataclass(frozen=True)
class GameReport:
    """One judgement a policy and mode."""

    judgements: Sequence[GameJudgement]
    couplings: Mapping[str, Sequence[CouplingStats]]
    """Of the games played, by cell."""

    def to_json(self) -> list[dict[str, Any]]:
        return [j.to_json() for j in self.judgements]

    def summary(self) -> list[str]:
        """None: the table is short."""
        return []

    def tables(self) -> list[Table]:
        table = Table("policy", "mode", "of the bound [95 %]", "demand", "supply", "passes", "unserved", "failure")
        for j in self.judgements:
            if o := j.overall:
                shares = (f"{o.passes:.2f}", f"{o.unserved:.2f}", o.failure)
                table.add_row(j.policy, j.mode, str(o.fraction), f"{o.own[0]:.1f}", f"{o.own[1]:.1f}", *shares)
        return [table, *self._by_cell(), self._couplings()]

    def about(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def plots(self, folder: Path) -> list[Path]:
        """None."""
        return []

    def notes(self) -> list[str]:
        notes = [f"not judged: {j.policy} {j.mode} {line}" for j in self.judgements for line in j.lost]
        for j in self.judgements:
            for name, regret in j.regret.items():
                notes.append(
                    f"regret of {j.policy}, {j.mode}, {name}: between {regret['at_least']:.3f} and "
                    f"{regret['at_most']:.3f} of the bound, mean over {regret['games']} small games"
                )
        return notes

    def _by_cell(self) -> list[Table]:
        """Fractions per cell, a few cells a table so that it fits."""
        cells = sorted({name for j in self.judgements for name in j.by_cell}, key=cell_order)
        tables = []
        for start in range(0, len(cells), CELLS_A_TABLE):
            some = cells[start : start + CELLS_A_TABLE]
            tables.append(Table("by domain, coupling, n", "mode", *some))
            for j in self.judgements:
                tables[-1].add_row(j.policy, j.mode, *(_shown(j.by_cell.get(name)) for name in some))
        return tables

    def _couplings(self) -> Table:
        """How irregular the games of each cell are, means."""
        table = Table("games of", "number", "degree CV of supply nodes", "sites with one supply node")
        for cell in sorted(self.couplings, key=cell_order):
            found = self.couplings[cell]
            cv, single = (mean(getattr(s, name) for s in found) for name in ("degree_cv", "single_sites"))
            table.add_row(cell, str(len(found)), f"{cv:.2f}", f"{single:.2f}")
        return table


def cell_order(cell: str) -> tuple[str, str, int]:
    """Sorts cells by domain, coupling, and size as a number."""
    domain, coupling, size = cell.split("/")
    return domain, coupling, int(size)


def _shown(cell: CellJudgement | None) -> str:
    if cell is None:
        return "-"
    return str(cell.fraction) if cell.failure == "none" else f"{cell.fraction} {cell.failure}"
