"""The state at the end of the last whole update: committed at once when a run is told to end, wherever in the next one
it is."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from refork.cluster.checkpoint_folder import step_of
from refork.cluster.checkpoints import RunCheckpoints
from refork.trainers.loop import Checkpointer, Loop

log = logging.getLogger("refork.training")

STOP = "stop"
"""File in a run's folder that asks its first learner to commit what it has; the learner takes it away when it has."""


class Boundary:
    """Of one run. It may be saved from another thread than that of the loop."""

    def __init__(self, store: RunCheckpoints, checkpointer: Checkpointer) -> None:
        """`checkpointer`: what the loop saves with, into that store."""
        self._store, self._inner = store, checkpointer
        self._noted: tuple[int, dict[str, Any]] | None = None
        self._saving = threading.Lock()

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """As the loop's checkpointer: never two at a time."""
        with self._saving:
            self._inner.save(step, state)

    def note(self, loop: Loop) -> bool:
        """Called by the loop between updates; never asks it to stop."""
        self._noted = (loop.update, copy.deepcopy(loop.state_dict()))
        return False

    def commit(self) -> None:
        """Save what was noted last, unless it is there. A disk that is full is warned of: what is there stays."""
        noted = self._noted
        with self._saving:
            if noted is None or self._is_saved(noted[0]):
                return
            try:
                self._store.save_last(*noted)
            except OSError as error:
                log.warning("update %d could not be saved: %s; an earlier checkpoint is whole", noted[0], error)

    def _is_saved(self, step: int) -> bool:
        newest = self._store.newest()
        return newest is not None and step_of(newest.name) >= step


class Watch:
    """A thread that commits when asked to: by the stop file, or by word that a host will be taken away."""

    INTERVAL_S = 0.2

    def __init__(self, folder: Path, boundary: Boundary, warned: Callable[[], bool]) -> None:
        """`warned`: was there new word of a host's end since it was asked last?"""
        self._stop, self._boundary, self._warned = folder / STOP, boundary, warned
        self._stop.unlink(missing_ok=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(self.INTERVAL_S):
            if self._stop.exists():
                self._boundary.commit()
                self._stop.unlink(missing_ok=True)
            elif self._warned():
                self._boundary.commit()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def ask_to_commit(folder: Path, patience_s: float) -> bool:
    """Ask the first learner of the run in `folder`, and wait for it; whether it did."""
    deadline = time.monotonic() + patience_s
    (folder / STOP).touch()
    while (folder / STOP).exists():
        if time.monotonic() > deadline:
            (folder / STOP).unlink(missing_ok=True)
            return False
        time.sleep(0.05)
    return True
