"""What goes wrong with the machine under a sandbox, told from what goes wrong in it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refork.envs.forkable import InfraFailure

MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EAGAIN)
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def machine_failures(store: Path) -> Iterator[None]:
    """Turn an OSError that is the machine's fault into an InfraFailure; `store` is where layers are kept."""
    try:
        yield
    except OSError as error:
        if error.errno not in MACHINE_ERRORS:
            raise
        raise full(store) if error.errno in _FULL else InfraFailure(f"{store}: {error.strerror}") from error


def full(store: Path) -> InfraFailure:
    return InfraFailure(f"the disk under {store} is full: free some or set REFORK_HOME elsewhere")
