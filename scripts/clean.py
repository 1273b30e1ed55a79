"""`refork clean`: removes what runs that no longer live have left behind."""

from __future__ import annotations


def clean() -> int:
    """Remove sandboxes, layers, containers and temporary folders whose owner is dead; what lives is left alone.

    Copies of workspaces and conversions of logs that no living process uses go too: they are made again from what they
    were made of. Built tasks and the state DAG stay: later runs need them, and they take long to make.
    """
    from refork.cluster.reaper import collect, sweep

    for kind, count in {**sweep(), **collect()}.items():
        print(f"{kind}: {_said(count)}")
    return 0


def _said(count: int | None) -> str:
    if count is None:
        return "could not be asked, so what is there stays; run it again later"
    return f"{count} removed" if count else "nothing to remove"
