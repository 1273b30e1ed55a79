"""What of the e2b backend works here, for `refork doctor`; leaves nothing behind."""

from __future__ import annotations

import importlib.metadata
import os

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Finding, UnsupportedHost
from refork.envs.swe.sandbox.e2b_client import INSTALL, Service, load_sdk


def probe() -> list[Finding]:
    """The package, the key, and whether the service answers to it."""
    try:
        load_sdk()
    except UnsupportedHost:
        return [Finding("e2b package", False, "not installed", INSTALL)]
    package = Finding("e2b package", True, importlib.metadata.version("e2b"))
    if not os.environ.get("E2B_API_KEY"):
        return [
            package,
            Finding(
                "e2b key",
                False,
                "E2B_API_KEY is not set",
                "set it, and E2B_API_URL and E2B_SANDBOX_URL (or E2B_DOMAIN) for your own cluster",
            ),
        ]
    return [package, Finding("e2b key", True, "set"), _service()]


def _service() -> Finding:
    where = os.environ.get("E2B_API_URL") or os.environ.get("E2B_DOMAIN") or "e2b.app"
    try:
        count = Service(attempts=1, request_s=10.0).check()
    except (UnsupportedHost, InfraFailure) as error:
        return Finding("e2b service", False, str(error), "check E2B_API_KEY, E2B_DOMAIN and the network")
    return Finding("e2b service", True, f"{where} answers; {count} sandboxes of this host there")
