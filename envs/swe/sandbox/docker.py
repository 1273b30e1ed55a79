"""Sandboxes in Docker containers: one supervisor a container, states kept on the host by content.

A container is interchangeable: it is brought to a state by sending what differs from what it holds, so opening,
restoring and forking cost the difference, and a container whose sandbox was closed serves the next one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import docker
from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.home import home
from refork.envs.swe import images
from refork.envs.swe.sandbox.base import (
    DEFAULT_ENVIRONMENT,
    WORKSPACE,
    Backend,
    CommandResult,
    Entry,
    Finding,
    Limits,
    Sandbox,
    SandboxSpec,
    digest_state,
)
from refork.envs.swe.sandbox.capture import FLOOD_BYTES, join_halves
from refork.envs.swe.sandbox.docker_client import connect, sweep
from refork.envs.swe.sandbox.docker_container import Container, start
from refork.envs.swe.sandbox.docker_pool import Kind, Pool
from refork.envs.swe.sandbox.docker_probe import probe
from refork.envs.swe.sandbox.docker_state import CONTENT, StateStore, applied
from refork.envs.swe.sandbox.manifest import base_manifest, difference
from refork.envs.swe.sandbox.trees import disk_use
from refork.envs.swe.sandbox.warm import module_of, same_start

FULL_BYTES = 16 << 20
"""With less than this free under the daemon, nothing a command reports is believed."""
GRACE_S = 30.0
"""How long after a command's time the supervisor may take to answer before its container counts as lost."""


class DockerBackend(Backend):
    """Opens sandboxes in containers of the daemon that DOCKER_HOST names."""

    name = "docker"

    def __init__(self, folder: Path | None = None, *, run: str = "", spare: int = 1) -> None:
        """`folder` keeps states (default: home()/docker); `run` labels the containers; `spare` are kept started.

        Removes containers of dead owners. Raises UnsupportedHost when there is no daemon.
        """
        self.folder = folder or home() / "docker"
        self._process = os.getpid()
        self.client = connect()
        self.states = StateStore(self.folder)
        self.pool = Pool(functools.partial(_start, self.client, run, self.folder / "slots"), spare)
        self._images: dict[tuple[Path | None, str | None], str] = {}
        self._sandboxes: set[DockerSandbox] = set()
        sweep(self.client)

    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> DockerSandbox:
        if os.getpid() != self._process:
            raise InfraFailure("a docker backend cannot be used across a fork: make one in each process")
        sandbox = DockerSandbox(self, spec, self._kind(spec))
        self._sandboxes.add(sandbox)
        try:
            sandbox.restore(ref or StateRef(digest_state(spec.base_id, {})))
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def _kind(self, spec: SandboxSpec) -> Kind:
        key = (spec.python_env, spec.image)
        if key not in self._images:
            made = (
                images.task_image(self.client, spec.image)
                if spec.image
                else images.local_image(self.client, spec.python_env)
            )
            self._images[key] = made
        environment = {**DEFAULT_ENVIRONMENT, **spec.environment}
        return Kind(self._images[key], tuple(sorted(environment.items())), spec.preload, spec.limits)

    def retain(self, ref: StateRef) -> None:
        """Keep the state of `ref` after this backend is closed, until `collect` is not told of it any more."""
        if "state" in ref.payload:
            self.states.keep(ref.payload["state"])

    def collect(self, live: Iterable[StateRef]) -> None:
        """Of the retained states, keep only those in `live`."""
        self.states.collect({ref.payload["state"] for ref in live if "state" in ref.payload})

    def forget(self, sandbox: DockerSandbox) -> None:
        """Called by a sandbox that is closed."""
        self._sandboxes.discard(sandbox)

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        for sandbox in list(self._sandboxes):
            sandbox.close()
        self.pool.close()
        self.client.close()
        self.states.close()

    @classmethod
    def probe(cls) -> list[Finding]:
        return probe()


def _start(client: docker.APIClient, run: str, slots: Path, kind: Kind) -> Container:
    return start(client, kind.image, dict(kind.environment), kind.limits, preload=kind.preload, run=run, slots=slots)


class DockerSandbox(Sandbox):
    """A sandbox that at the moment lives in some container of its backend's pool."""

    def __init__(self, backend: DockerBackend, spec: SandboxSpec, kind: Kind) -> None:
        self.spec = spec
        self._backend, self._kind = backend, kind
        self._base = _base_of(spec.base, spec.base_id)
        self._container: Container | None = backend.pool.take(kind, spec.base_id)
        self._changes: dict[str, Entry] = {}
        self._revision = -1

    @property
    def container_name(self) -> str:
        """Of the container this sandbox lives in at the moment."""
        return self._live().name

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        warm: bool = False,
    ) -> CommandResult:
        limits = limits or self.spec.limits
        whole = {**dict(self._kind.environment), **(environment or {})}
        if not argv or any("\0" in text for text in (*argv, cwd, *whole, *whole.values())):
            raise ValueError(f"a command needs a name and no NUL in it: {list(argv)!r} in {cwd!r}")
        container = self._live()
        container.limit(limits)
        header, body = container.ask(
            "run",
            argv=list(argv),
            cwd=cwd,
            env=whole,
            warm=warm and module_of(list(argv)) is not None and same_start(whole, dict(self._kind.environment)),
            limits={
                **asdict(limits),
                "disk_bytes": (limits.disk_mb << 20) + self._base.size,
                "flood_bytes": FLOOD_BYTES,
            },
            wait_s=limits.wall_s + GRACE_S,
        )
        if header["free_bytes"] < FULL_BYTES:
            raise InfraFailure(f"the disk under the data root of the Docker daemon is full (in {container.name})")
        if header["killed_by"] == "disk":
            self._become({})  # the only state that does not depend on how far a kill came too late
        output, omitted = _text(body, header["head"], header["total"])
        return CommandResult(header["code"], output, omitted, header["wall_s"], header["killed_by"])

    def _live(self) -> Container:
        if self._container is None:
            raise ValueError("this sandbox is closed")
        return self._container

    def put(self, files: Mapping[str, bytes | None]) -> None:
        parts = [content for content in files.values() if content is not None]
        rows = [[path, -1 if content is None else len(content)] for path, content in files.items()]
        self._live().ask("put", files=rows, body=parts, size=sum(map(len, parts)))

    def get(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        return bytes(self._live().ask("get", path=path, max_bytes=max_bytes)[1])

    @property
    def changes(self) -> Mapping[str, Entry]:
        container = self._live()
        revision = container.scan()
        if revision != self._revision:
            self._changes, self._revision = difference(self._base.rows, container.rows), revision
        return self._changes

    def snapshot(self) -> StateRef:
        changes = self.changes
        state_id = digest_state(self.spec.base_id, changes)
        self._backend.states.save(state_id, changes, self._live().read)
        return StateRef(state_id, {"state": state_id, "bytes": self._backend.states.size(changes)})

    def restore(self, ref: StateRef) -> None:
        at_base = ref.state_id == digest_state(self.spec.base_id, {})
        changes = {} if at_base else self._backend.states.load(ref.payload.get("state", ref.state_id))
        kept = digest_state(self.spec.base_id, changes)
        if kept != ref.state_id:
            raise StateMismatch(f"what is kept gives state {kept}, not {ref.state_id}")
        self._replace_if_broken()
        self._become(changes)
        _verify(ref, self.spec.base_id, changes, self.changes)

    def _become(self, changes: Mapping[str, Entry]) -> None:
        container = self._live()
        container.become(applied(self._base.rows, changes), functools.partial(self._content, changes))
        self._revision = -1

    def _replace_if_broken(self) -> None:
        container = self._live()
        if container.link.broken:
            self._container = None
            self._backend.pool.give(self._kind, container)
            self._container = self._backend.pool.take(self._kind, self.spec.base_id)

    def _content(self, changes: Mapping[str, Entry], path: str, entry: Entry) -> bytes:
        if entry.kind not in CONTENT:
            return b""
        return self._backend.states.content(path, entry.digest) if path in changes else self._base.content(path)

    def fork(self) -> DockerSandbox:
        return self._backend.open(self.spec, self.snapshot())

    def close(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            self._backend.forget(self)
            self._backend.pool.give(self._kind, container)


def _text(body: bytes, head: int, total: int) -> tuple[str, int]:
    if total == len(body):
        return body.decode(errors="replace"), 0
    return join_halves(body[:head], body[head:], total)


def _verify(ref: StateRef, base_id: str, wanted: Mapping[str, Entry], found: Mapping[str, Entry]) -> None:
    """Raises StateMismatch when the container does not hold what it was told to."""
    if digest_state(base_id, found) != ref.state_id:
        path = min(p for p in wanted.keys() | found.keys() if wanted.get(p) != found.get(p))
        raise StateMismatch(f"{path}: {found.get(path)} where state {ref.state_id[:12]} has {wanted.get(path)}")


@dataclass(frozen=True)
class _Base:
    folder: Path
    rows: Mapping[str, Entry]
    size: int

    def content(self, path: str) -> bytes:
        source = self.folder / path[len(WORKSPACE) + 1 :]
        return os.fsencode(os.readlink(source)) if source.is_symlink() else source.read_bytes()


@functools.lru_cache(maxsize=64)
def _base_of(folder: Path, base_id: str) -> _Base:
    return _Base(folder, base_manifest(folder), disk_use(folder, 1 << 62))
