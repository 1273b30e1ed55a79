"""Started containers kept at hand: making one takes a third of a second, bringing one to a state a few milliseconds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from refork.envs.swe.sandbox.base import Limits
from refork.envs.swe.sandbox.docker_container import Container

KEEP = 8
"""Idle containers of one kind that are kept; further ones are removed when given back."""


@dataclass(frozen=True)
class Kind:
    """What a container is started with; containers of one kind are interchangeable."""

    image: str
    environment: tuple[tuple[str, str], ...]
    preload: tuple[str, ...]
    limits: Limits


class Pool:
    """Hands out containers, makes `spare` ahead of need, takes back those that still work."""

    def __init__(self, make: Callable[[Kind], Container], spare: int) -> None:
        self._make, self._spare = make, spare
        self._idle: dict[Kind, list[Container]] = defaultdict(list)
        self._coming: dict[Kind, list[Future[Container]]] = defaultdict(list)
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="refork-docker")
        self._closed = False

    def take(self, kind: Kind, base_id: str) -> Container:
        """An idle container, if possible one that held `base_id`, else the next that comes. Raises InfraFailure."""
        with self._lock:
            idle = self._idle[kind]
            best = max(range(len(idle)), key=lambda i: (idle[i].base_id == base_id, i), default=None)
            found = None if best is None else idle.pop(best)
            coming = self._coming[kind].pop(0) if found is None and self._coming[kind] else None
        container = found or (coming.result() if coming else self._make(kind))
        container.base_id = base_id
        self._refill(kind)
        return container

    def _refill(self, kind: Kind) -> None:
        with self._lock:
            waiting = [future for future in self._coming[kind] if not future.done() or not future.exception()]
            self._coming[kind] = waiting
            missing = self._spare - len(self._idle[kind]) - len(waiting)
            if not self._closed:
                waiting.extend(self._workers.submit(self._make, kind) for _ in range(missing))

    def give(self, kind: Kind, container: Container) -> None:
        """Take a container back, for the next sandbox of its kind; one that broke is removed."""
        with self._lock:
            if keep := not self._closed and container.link.broken is None and len(self._idle[kind]) < KEEP:
                self._idle[kind].append(container)
        if not keep:
            container.remove()

    def close(self) -> None:
        """Remove all that are idle or coming."""
        with self._lock:
            self._closed = True
            idle = [container for containers in self._idle.values() for container in containers]
            coming = [future for futures in self._coming.values() for future in futures if not future.cancel()]
            self._idle.clear()
            self._coming.clear()
        self._workers.shutdown(wait=True)
        made = [future.result() for future in coming if not future.exception()]
        for container in (*idle, *made):
            container.remove()
