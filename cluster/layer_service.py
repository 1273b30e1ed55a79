"""Sandbox layers between the nodes of a Ray cluster: on each node an actor that serves what that node has.

Layers go by content id through the object store, in chunks that the taker asks for one by one, so a taker or a node
that dies leaves nobody waiting. A node that is gone only means that its layers are not to be had here.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from refork.cluster.local_ray import ray
from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.home import home
from refork.envs.swe.sandbox.layer_archive import CHUNK_BYTES
from refork.envs.swe.sandbox.layer_sharing import archive, receive
from refork.envs.swe.sandbox.layers import LayerStore
from refork.envs.swe.sandbox.spawner import sandbox_owner

log = logging.getLogger("refork.layers")

PREFIX = "refork-layers-"
"""Of the actors' names, before the id of their node; each run has a namespace of its own."""
_ARCHIVES = 8
"""Archives that a service keeps on its disk, for those who are about to ask for the next chunk."""
_ASK_S, _READ_S = 10.0, 300.0
"""Seconds until a service counts as gone: for a question; for a chunk, before the first of which a layer is packed."""


class LayerService:
    """The actor: one thread, the layer store of its node. What is put here lives as long as it does."""

    def __init__(self) -> None:
        self._store = LayerStore(home() / "layers", sandbox_owner())
        self._archives: OrderedDict[str, Path] = OrderedDict()

    def has(self, layer: str) -> bool:
        return self._store.index.find(layer) is not None

    def read(self, layer: str, start: int) -> tuple[bytes, int]:
        """At most `CHUNK_BYTES` of the archive from byte `start` on, and its length. Raises InfraFailure."""
        path = self._archive(layer)
        with path.open("rb") as reader:
            reader.seek(start)
            return reader.read(CHUNK_BYTES), path.stat().st_size

    def take(self, layer: str, chunks: list[Any]) -> None:
        """Have a layer here too; `chunks` are references to its archive's. Raises InfraFailure."""
        if not self.has(layer):
            receive(self._store, layer, (ray.get(chunk) for chunk in chunks))

    def close(self) -> None:
        """Remove what this service holds for itself."""
        self._store.close()

    def _archive(self, layer: str) -> Path:
        if layer in self._archives:
            self._archives.move_to_end(layer)
            return self._archives[layer]
        name = self._store.index.find(layer)
        if name is None:
            raise InfraFailure(f"layer {layer} is not on this node any more")
        path = self._store.private / f"archive-{layer}"
        try:
            with path.open("wb") as writer:
                writer.writelines(archive(self._store, name))
        except StateMismatch as error:
            raise InfraFailure(f"layer {layer} is damaged on its node: {error}") from error
        self._archives[layer] = path
        if len(self._archives) > _ARCHIVES:
            self._archives.popitem(last=False)[1].unlink()
        return path


class LayerServices:
    """The services of a run, held by the process that drives it; they end with it."""

    def __init__(self) -> None:
        self._services: dict[str, Any] = {}

    def start(self) -> None:
        """One on every node that is there now and has none."""
        remote = ray.remote(LayerService)
        for node in ray.nodes():
            name = PREFIX + node["NodeID"]
            if node["Alive"] and name not in self._services:
                here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                options = {"name": name, "num_cpus": 0, "scheduling_strategy": here, "max_restarts": 3}
                self._services[name] = remote.options(**options).remote()

    def close(self) -> None:
        if closing := [service.close.remote() for service in self._services.values()]:
            ray.wait(closing, num_returns=len(closing), timeout=_ASK_S)
        for service in self._services.values():
            ray.kill(service)
        self._services.clear()


class ClusterDepot:
    """The layers of all nodes that have a service (`LayerDepot`). The node that had the last one is asked first."""

    def __init__(self) -> None:
        self._last: tuple[str, str] = ("", "")
        """Layer, and name of the service that has it."""

    def has(self, layer: str) -> bool:
        last = self._last[1]
        if last and self._found(layer, [last]):
            return True
        return self._found(layer, [n for n in ray.util.list_named_actors() if n.startswith(PREFIX) and n != last])

    def _found(self, layer: str, services: Sequence[str]) -> bool:
        """Whether one of them has it; they are asked all at once."""
        asked = {answer: name for name in services if (answer := _ask(name, layer)) is not None}
        pending = list(asked)
        while pending:
            done, pending = ray.wait(pending, timeout=_ASK_S)
            if not done:
                log.warning("%d nodes do not say whether they have layer %s", len(pending), layer)
                return False
            if _answer(done[0]):
                self._last = layer, asked[done[0]]
                return True
        return False

    def get(self, layer: str) -> Iterator[bytes]:
        if self._last[0] != layer and not self.has(layer):
            raise InfraFailure(f"layer {layer} is on no node of the cluster")
        try:
            service = ray.get_actor(self._last[1])
            pending: Any = service.read.remote(layer, 0)
            start, size = 0, 1
            while start < size:
                chunk, size = ray.get(pending, timeout=_READ_S)
                if not chunk:
                    raise InfraFailure(f"layer {layer}: its node sends nothing")
                start += len(chunk)
                if start < size:
                    pending = service.read.remote(layer, start)
                yield chunk
        except (ray.exceptions.RayError, ValueError) as error:
            raise InfraFailure(f"layer {layer}: its node does not answer: {_line(error)}") from error

    def put(self, layer: str, chunks: Iterable[bytes]) -> None:
        """Leave it with the service of this node."""
        name = PREFIX + ray.get_runtime_context().get_node_id()
        try:
            taking: Any = ray.get_actor(name).take.remote(layer, [ray.put(chunk) for chunk in chunks])
            ray.get(taking, timeout=_READ_S)
        except (ray.exceptions.RayError, ValueError) as error:
            raise InfraFailure(f"layer {layer}: the service of this node does not take it: {_line(error)}") from error

    def __str__(self) -> str:
        return "the nodes of the cluster"


def _ask(name: str, layer: str) -> Any:
    try:
        return ray.get_actor(name).has.remote(layer)
    except ValueError:  # it has gone since it was listed
        return None


def _answer(answer: Any) -> bool:
    try:
        return bool(ray.get(answer))
    except ray.exceptions.RayError as error:
        log.warning("a node's layers are not to be had: %s", _line(error))
        return False


def _line(error: Exception) -> str:
    cause = getattr(error, "cause", None) or error
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), type(error).__name__)
