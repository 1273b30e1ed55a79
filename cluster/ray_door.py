"""Does a Ray cluster take our token? Asked by a process of its own: Ray itself would ask for 20 s and tell of each try.

Run as a module this is that process.
"""

from __future__ import annotations

import subprocess
import sys

_PATIENCE_S = 30.0
_TURNED_AWAY = 3
"""Exit code of the one that asks."""


def is_let_in(address: str) -> bool:
    """False where the head at `address` refuses our token; any other trouble is for the one who enters to find."""
    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__, address],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        return True
    return asked.returncode != _TURNED_AWAY


def _ask(address: str) -> int:
    from refork.cluster.local_ray import ray, stay_on_loopback

    # isort: split
    from ray._private.services import canonicalize_bootstrap_address_or_die
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    stay_on_loopback(False)
    try:
        GcsClient(address=canonicalize_bootstrap_address_or_die(address))
    except ray.exceptions.AuthenticationError:
        return _TURNED_AWAY
    return 0


if __name__ == "__main__":
    sys.exit(_ask(sys.argv[1]))
