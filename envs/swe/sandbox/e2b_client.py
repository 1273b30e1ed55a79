"""The service as the sandbox sees it: the public SDK with time-outs, bounded repeats and one kind of failure.

Address and key come from the environment (E2B_API_KEY, and for a cluster of one's own E2B_DOMAIN, or E2B_API_URL and
E2B_SANDBOX_URL); neither is logged nor passed into a sandbox.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from refork.envs.forkable import InfraFailure
from refork.envs.home import home
from refork.envs.owner import alive, owner
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.envs.swe.sandbox.docker_client import LABEL, MACHINE_LABEL, RUN_LABEL, creation_slot, machine

LEASE_S = 3600
"""A machine ends by itself so long after its last use: what a dead host leaves behind does not cost for ever."""
REQUEST_S = 60.0
ATTEMPTS = 4
"""Of ours, each with the SDK's own three repeats within REQUEST_S, which follow the service's Retry-After."""
LONGEST_PAUSE_S = 15.0
INSTALL = "pip install 'refork[e2b]'"
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


def load_sdk() -> Any:
    """The module `e2b`. Raises UnsupportedHost saying what to install."""
    try:
        import e2b
    except ImportError as error:
        raise UnsupportedHost(f"the e2b backend needs the package `e2b` ({error}): {INSTALL}") from error
    return e2b


def snapshot_prefix() -> str:
    """What the names of all snapshots begin with that belong to processes of this host."""
    return f"refork-{hashlib.sha256(machine().encode()).hexdigest()[:12]}-"


def owner_of(snapshot_name: str) -> str | None:
    """The label of the process of this host that took a snapshot; None for any other's."""
    prefix = snapshot_prefix()
    if not snapshot_name.startswith(prefix):
        return None
    return snapshot_name.removeprefix(prefix).rpartition("-")[0]


class Service:
    """One connection. Raises UnsupportedHost where there is no package or key, InfraFailure when it fails."""

    def __init__(self, run: str = "", *, attempts: int = ATTEMPTS, request_s: float = REQUEST_S) -> None:
        self.sdk = load_sdk()
        self._attempts, self._options = attempts, {"request_timeout": request_s}
        self._key = os.environ.get("E2B_API_KEY", "")
        if not self._key:
            raise UnsupportedHost("the e2b backend needs a key: set E2B_API_KEY (and E2B_DOMAIN for your own cluster)")
        if os.environ.get("E2B_DEBUG", "").lower() == "true":
            raise UnsupportedHost("E2B_DEBUG=true makes the SDK invent its sandboxes: unset it for the e2b backend")
        self.run = run

    def check(self) -> int:
        """How many machines of this host there are. Raises UnsupportedHost when the key is refused."""
        return len(self.machines())

    def create(self, template: str, slots: Path) -> Any:
        """A new machine from a template or snapshot, without network, in bounded numbers at a time."""
        labels = {LABEL: owner(), RUN_LABEL: self.run, MACHINE_LABEL: machine()}
        key = f"refork-{uuid.uuid4()}"  # a repeat after a lost answer gets the machine that was made the first time

        def make() -> Any:
            with creation_slot(slots):
                return self.sdk.Sandbox.create(
                    template,
                    timeout=LEASE_S,
                    metadata=labels,
                    allow_internet_access=False,
                    idempotency_key=key,
                    **self._options,
                )

        return self.call(f"no sandbox could be made from {template}", make)

    def snapshot(self, sandbox_id: str, name: str) -> str:
        """Take a snapshot of a machine, files and memory; its id."""
        what = f"sandbox {sandbox_id} could not be frozen"
        make = self.sdk.Sandbox.create_snapshot
        return str(self.call(what, lambda: make(sandbox_id, name, **self._options)).snapshot_id)

    def kill(self, sandbox_id: str) -> bool:
        """End a machine; whether it was there."""
        kill = self.sdk.Sandbox.kill
        return bool(self.call(f"sandbox {sandbox_id} could not be ended", lambda: kill(sandbox_id, **self._options)))

    def renew(self, sandbox_id: str, seconds: float) -> None:
        """Let a machine live for so long from now."""
        renew = self.sdk.Sandbox.set_timeout
        self.call(
            f"the lease of sandbox {sandbox_id} could not be renewed",
            lambda: renew(sandbox_id, int(seconds), **self._options),
        )

    def machines(self) -> dict[str, str]:
        """Id and owner of every machine that this host made."""
        query = self.sdk.SandboxQuery(metadata={MACHINE_LABEL: machine()})
        pages = self._pages("sandboxes could not be listed", self.sdk.Sandbox.list(query=query))
        return {found.sandbox_id: (found.metadata or {}).get(LABEL, "") for found in pages}

    def snapshots(self, name: str | None = None) -> dict[str, str]:
        """Name, without team and tag, and id of every snapshot; of that name, if one is given."""
        pages = self._pages("snapshots could not be listed", self.sdk.Sandbox.list_snapshots(name=name))
        rows = [(full.rpartition("/")[2].partition(":")[0], s.snapshot_id) for s in pages for full in s.names]
        return {short: found for short, found in rows if name in (None, short)}

    def delete_snapshot(self, snapshot_id: str) -> bool:
        """Remove a snapshot; whether it was there."""
        delete = self.sdk.Sandbox.delete_snapshot
        return bool(
            self.call(f"snapshot {snapshot_id} could not be removed", lambda: delete(snapshot_id, **self._options))
        )

    def _pages(self, what: str, pages: Any) -> Iterator[Any]:
        while pages.has_next:
            yield from self.call(what, lambda: pages.next_items(**self._options))

    def call(self, what: str, action: Callable[[], _T], *, repeat: bool = True) -> _T:
        """Do `action`; what may pass is tried again, later each time (without `repeat` only what was refused unseen).

        Raises InfraFailure that says `what` failed, UnsupportedHost when the key is refused.
        """
        for attempt in range(self._attempts):
            try:
                return action()
            except self.sdk.AuthenticationException as error:
                raise UnsupportedHost(
                    f"the sandbox service refuses the key in E2B_API_KEY: {self._text(error)}"
                ) from None
            except Exception as error:
                if not self._known(error):
                    raise
                if attempt == self._attempts - 1 or not self._passes(error, repeat):
                    raise InfraFailure(f"{what} (attempt {attempt + 1}): {self._text(error)}") from None
                pause = min(0.5 * 2**attempt, LONGEST_PAUSE_S) * (0.5 + random.random())
                _log.warning("%s, trying again in %.1f s: %s", what, pause, self._text(error))
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _known(self, error: Exception) -> bool:
        """Whether this is the service's or the line's failure and not a fault of ours."""
        import httpx
        from connectrpc.errors import ConnectError

        kinds = (self.sdk.SandboxException, self.sdk.ServiceBusyException, httpx.HTTPError, ConnectError, OSError)
        return isinstance(error, kinds) or str(error) == "Command ended without an end event"

    def _passes(self, error: Exception, repeat: bool) -> bool:
        """429 and 503 were refused unseen; an answer 5xx or none at all may have been acted on."""
        import httpx

        if isinstance(error, self.sdk.RateLimitException | self.sdk.ServiceBusyException):
            return True
        status = getattr(error, "status_code", None)
        return repeat and (isinstance(error, httpx.HTTPError | OSError) or (status is not None and status >= 500))

    def _text(self, error: BaseException) -> str:
        text = str(error).strip() or type(error).__name__
        return text.replace(self._key, "***")[-500:]


def kept_folder() -> Path:
    """Empty files named as the snapshots that runs of this host have stored for later."""
    return home() / "e2b" / "kept"


def sweep(service: Service) -> int:
    """End every machine, and remove every snapshot not kept for later, whose owner on this host is dead; how many."""
    found = [service.kill(name) for name, label in service.machines().items() if not alive(label)]
    for name, snapshot_id in service.snapshots().items():
        label = owner_of(name)
        if label is not None and not alive(label) and not (kept_folder() / name).exists():
            found.append(service.delete_snapshot(snapshot_id))
    return sum(found)


@contextlib.contextmanager
def warned(what: str) -> Iterator[None]:
    """A failure to clean up is a warning: a later sweep does it."""
    try:
        yield
    except (InfraFailure, UnsupportedHost) as failure:
        _log.warning("%s: %s; `refork clean` will do it", what, failure)
