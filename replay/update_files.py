"""A folder with one file an update. A file is there whole or not at all (temp file, fsync, rename)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar


class UpdateFiles:
    """What a crash interrupts is lost as a whole, and played again on resuming."""

    suffix: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def drop_from(self, update: int) -> None:
        """Remove update number `update` and later ones: a resumed run plays them again."""
        for number in self.updates():
            if number >= update:
                self.path(number).unlink()

    def updates(self) -> list[int]:
        """Numbers of the updates kept, ascending."""
        names = (path.name.removesuffix(self.suffix) for path in self.folder.glob(f"*{self.suffix}"))
        return sorted(int(name) for name in names if name.isdecimal())

    def path(self, update: int) -> Path:
        """The file of update number `update`."""
        return self.folder / f"{update:08d}{self.suffix}"

    def write_whole(self, update: int, content: bytes) -> Path:
        """Put `content` in place of what was there. Raises OSError (disk full)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(update)
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        return path
