"""How the supervisor gets into a container: its source comes first on the stream, loaded by a few lines of boot."""

from __future__ import annotations

import importlib.util
import json
import struct
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import TMP, WORKSPACE

ROOTS = (WORKSPACE, TMP)
MACHINES = ("x86_64", "aarch64")
"""Architectures of daemons that a seccomp filter is known for."""
PACKAGE = "refork.envs.swe.sandbox"
SUPERVISOR = (
    "linux",
    "trees",
    "warm",
    "wire",
    "supervisor_tree",
    "supervisor_files",
    "supervisor_ipc",
    "supervisor_exec",
    "supervisor_watch",
    "supervisor_warm",
    "supervisor",
)
"""The modules, of the package `PACKAGE`, that the supervisor inside is made of."""
BOOT = f"""
import sys
full_path = [p for p in sys.path if p]
sys.path[:] = [p for p in full_path if not p.startswith({ROOTS!r})]
import json, os, struct, types
def read(n):
    data = b""
    while len(data) < n:
        data += os.read(0, n - len(data)) or os._exit(0)
    return data
def module(name, source):
    made = sys.modules[name] = types.ModuleType(name)
    if source is None:
        made.__path__ = []
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    exec(compile(source or "", name, "exec"), made.__dict__)
    return made
for name, source in json.loads(read(struct.unpack(">I", read(4))[0])):
    last = module(name, source)
last.main(full_path)
"""
"""Takes what the sandbox's user can write out of `sys.path` first of all: root imports nothing of his."""
FIND_PYTHON = """
for python in python python3 /usr/local/bin/python3 /usr/bin/python3 /opt/miniconda3/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && exec "$python" -c "$0"
done
echo "the image has no Python 3.9 or newer, which the supervisor needs" >&2
exit 3
"""


def sources() -> bytes:
    """The supervisor's modules, as the boot code reads them."""
    parts = PACKAGE.split(".")
    packages = [(".".join(parts[: i + 1]), None) for i in range(len(parts))]
    modules = [(f"{PACKAGE}.{name}", _source(f"{PACKAGE}.{name}")) for name in SUPERVISOR]
    data = json.dumps([*packages, *modules]).encode()
    return struct.pack(">I", len(data)) + data


def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        raise InfraFailure(f"the source of {module} is not installed")
    return Path(found.origin).read_text()
