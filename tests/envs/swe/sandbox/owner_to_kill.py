"""Run by test_overlay.py, to be killed: opens a sandbox in the store argv[1], leaves layers, and stays in a command."""

import sys
from pathlib import Path

from refork.envs.swe.sandbox.base import Limits, SandboxSpec
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.sandbox.overlay import OverlayBackend

root, base, marker = map(Path, sys.argv[1:])
backend = OverlayBackend(root)
sandbox = backend.open(SandboxSpec(base, digest_tree(base), preload=("json",)))
sandbox.run(["python", "-m", "json.tool", "-h"], warm=True)
sandbox.put({"/testbed/kept": b"1"})
kept = sandbox.snapshot()
backend.retain(kept)
sandbox.put({"/testbed/lost": b"1"})
lost = sandbox.snapshot()
spawner = backend.spawner(sandbox.spec)
group = spawner.group.path if spawner.group else ""
marker.write_text(f"{kept.payload['layers'][0]} {lost.payload['layers'][0]} {spawner.pid} {group}")
sandbox.run(["sh", "-c", "setsid sleep 7777 & sleep 7777"], limits=Limits(wall_s=500))
