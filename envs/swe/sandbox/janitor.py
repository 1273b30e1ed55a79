"""Makes and removes folders beside the work: on some disks freeing a block takes as long as a whole command."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from refork.envs.swe.sandbox.trees import remove_tree

_READY = 4
_REMOVERS = 8


class Janitor:
    """Keeps a few empty folders ready and removes others later, each in a thread of its own."""

    def __init__(self, make: Callable[[], Path]) -> None:
        self._make = make
        self._ready: deque[Path] = deque()
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._old: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._make_ready, self._remove_old)]
        for thread in self._threads:
            thread.start()
        for _ in range(_READY):
            self._wanted.put(True)

    def take(self) -> Path:
        """A new empty folder."""
        self._wanted.put(True)
        try:
            return self._ready.popleft()
        except IndexError:
            return self._make()

    def remove(self, path: Path) -> None:
        """Remove a folder that nothing uses any more, soon."""
        self._old.put(path)

    def close(self) -> None:
        """End both threads; what they have not done yet stays undone."""
        while not self._old.empty():
            self._old.get()
        self._wanted.put(False)
        self._old.put(None)
        for thread in self._threads:
            thread.join()

    def _make_ready(self) -> None:
        while self._wanted.get():
            if len(self._ready) < _READY:
                with suppress(OSError):  # `take` makes the next one itself, and says what is wrong
                    self._ready.append(self._make())

    def _remove_old(self) -> None:
        while (path := self._old.get()) is not None:
            remove_tree(path)


def remove_trees(paths: Iterable[Path]) -> None:
    """Remove many folders, some at a time: what takes long is waiting for the disk."""
    with ThreadPoolExecutor(_REMOVERS) as pool:
        for _ in pool.map(remove_tree, paths):
            pass
