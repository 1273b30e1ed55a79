"""`refork clean`: removes what runs that no longer live have left behind."""

from __future__ import annotations


def clean() -> int:
    """Remove sandboxes, layers, containers and temporary folders whose owner is dead; what lives is left alone."""
    from refork.cluster.reaper import collect, sweep

    found = {**sweep(), "unused copies of workspaces": collect()}
    for kind, count in found.items():
        print(f"{kind}: {count} removed" if count else f"{kind}: nothing to remove")
    return 0
