"""Who writes a run in a storage: one at a time, where that can be told.

The object `writer` names the owner. An owner that is alive on this host is never put aside. One that died on this host
is taken over from; so is one on another host, which cannot be asked, by whoever resumes the run here. Each looks at
`writer` before it sends, so one that was put aside and lives on stops instead of writing into the other's run.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from refork.cluster.storage import Storage, log, reason
from refork.envs.forkable import BadInput, InfraFailure

WRITER = "writer"


@contextmanager
def writing(storage: Storage | None, folder: Path) -> Iterator[None]:
    """Be the writer of the run in `folder`; `storage`: that of all runs, None: without one.

    Raises BadInput when its owner is alive on this host, or the storage does not answer.
    """
    if storage is None:
        yield
        return
    run = storage.below(folder.name)
    try:
        claim(run, folder)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{run.url}: cannot be written: {reason(error)}") from error
    try:
        yield
    finally:
        with suppress(Exception):  # whoever comes next on this host sees that this process has ended
            release(run, folder)


class TakenOver(InfraFailure):
    """Another machine writes the run now."""


def claim(storage: Storage, folder: Path) -> None:
    """Become the writer of the run in `folder`, in its `storage`; kept in the folder for learners elsewhere.

    Raises BadInput when its owner is alive on this host; what the storage's library raises goes through.
    """
    content = storage.read(WRITER)
    owner = _owner(content)
    if owner and owner.get("host") == _host():
        if _is_running(owner):
            raise BadInput(f"{storage.url}: process {owner['pid']} on this host is running this run")
    elif owner:
        log.warning("%s: taken over from %s; should it still run, it stops", storage.url, owner.get("host"))
    me = {"host": _host(), "pid": os.getpid(), "started": _started(os.getpid()), "token": secrets.token_hex(8)}
    text = json.dumps(me)
    (folder / WRITER).write_text(text, encoding="utf-8")
    storage.write(WRITER, text.encode())


def is_claimed(storage: Storage, name: str) -> bool:
    """Whether the storage of all runs has one of that name. Raises BadInput when it does not answer."""
    try:
        return any(storage.read(f"{name}/{file}") is not None for file in (WRITER, "job.toml"))
    except Exception as error:
        raise BadInput(f"{storage.url}: cannot be read: {reason(error)}") from error


def check(storage: Storage, folder: Path) -> None:
    """Raises TakenOver when another has become the writer; what the storage's library raises goes through."""
    now, mine = _owner(storage.read(WRITER)), _owner((folder / WRITER).read_bytes())
    if now and mine and now.get("token") != mine.get("token"):
        raise TakenOver(
            f"{storage.url}: {now.get('host')} has taken this run over; this one stops and sends nothing more"
        )


def release(storage: Storage, folder: Path) -> None:
    """Nobody writes any more. What the storage's library raises goes through."""
    now, mine = storage.read(WRITER), (folder / WRITER).read_bytes()
    if now == mine:
        storage.delete([WRITER])
    (folder / WRITER).unlink()


def _owner(content: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(content) if content else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _host() -> str:
    """Tells machines apart, and a machine from itself before it was started anew."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.exists() else ''}"


def _is_running(owner: dict[str, Any]) -> bool:
    """The same process, not another that was given its number."""
    pid = int(owner["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(pid) == owner["started"]


def _started(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty where that cannot be told."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
