"""A file of any format becomes a log on disk, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogArrays
from refork.replay.formats.assembler import Assembler
from refork.replay.formats.rows import Names, Rows, whole_episodes
from refork.replay.formats.schema import Schema
from refork.replay.log_writer import LogWriter
from refork.replay.validation import Place


@dataclass(frozen=True)
class Opened:
    """A file whose meaning is declared, not read yet."""

    path: Path
    schema: Schema
    names: Names
    blocks: Iterable[Rows]
    """Its rows in the order of the file."""
    unit: str = "row"
    """What messages call a row."""
    first: int = 1
    """Number of the first row in messages."""
    header: int = 0
    """Lines of a text file before its first row; 0: it has no lines."""
    by_episode: bool = False
    """Every block is one episode; messages count its steps from 0."""

    def pieces(self, assembler: Assembler) -> Iterator[LogArrays]:
        """The log, some episodes at a time. Raises BadInput at the first fault."""
        if self.by_episode:
            found = (assembler.piece(rows, self._place(rows)) for rows in self.blocks)
        else:
            found = (assembler.piece(rows) for rows in whole_episodes(self.blocks))
        return (piece for piece in found if piece is not None)

    def _place(self, rows: Rows) -> Place:
        return Place(f"{self.path}: episode {rows.episode[0]}", 0, self.unit)


def write_native(opened: Opened, folder: Path) -> None:
    """Convert to a log folder, whole or not at all. Raises BadInput at the first fault of the file."""
    place = Place(str(opened.path), opened.first, opened.unit, opened.header)
    assembler = Assembler(opened.schema, opened.names, place)
    seen = opened.schema.observation
    units = seen.units_of(seen.names or opened.names.observations, str(opened.path))
    with LogWriter(folder, assembler.spec) as writer:
        count = 0
        for piece in opened.pieces(assembler):
            writer.append(piece)
            count += len(piece.rewards)
        if not count:
            raise BadInput(
                f"{opened.path}: no decisions in {assembler.notes.rows} rows; there is nothing to learn from"
            )
        writer.patient_names = assembler.patient_names
        writer.notes = {**asdict(assembler.notes), "missing_policy": opened.schema.missing.policy, "units": units}
