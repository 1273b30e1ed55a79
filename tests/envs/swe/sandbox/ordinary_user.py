"""Run by test_overlay.py as an ordinary user with the system's own Python: prints what it saw as one JSON object."""

import json
import os
import sys
from pathlib import Path

from refork.envs.swe.sandbox.base import Limits, SandboxSpec
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.sandbox.overlay import OverlayBackend

root = Path(sys.argv[1])
base = root / "base"
(base / "pkg").mkdir(parents=True)
(base / "pkg" / "a.py").write_text("A = 1\n")
backend = OverlayBackend(root / "layers")
spec = SandboxSpec(base, digest_tree(base), preload=("unittest",))
seen = {"user": os.getuid()}
with backend.open(spec) as sandbox:
    seen["id"] = sandbox.run(["id", "-u"]).output
    closed = "mkdir c; echo 1 > c/f; chmod 0 c/f c; rm -r pkg; echo 2 > n; ln n m; chmod 0 n; mkdir -p d/e; chmod 500 d"
    seen["closed"] = sandbox.run(["sh", "-ec", closed]).exit_code
    seen["changes"] = {path: [e.kind, e.mode] for path, e in sorted(sandbox.changes.items())}
    ref = sandbox.snapshot()
    sandbox.put({"/testbed/d/new": b"1", "/testbed/c": None, "/testbed/n": b"3", "/testbed/pkg/b.py": b""})
    seen["after put"] = sandbox.run(["sh", "-c", "ls . d pkg; cat n"]).output
    with sandbox.fork() as fork:
        seen["fork"] = fork.state_id == sandbox.state_id
    sandbox.restore(ref)
    seen["restored"] = sandbox.state_id == ref.state_id
    for step in range(45):
        sandbox.put({f"/testbed/s{step}": b"1"})
        sandbox.snapshot()
    seen["squashed"] = sandbox.run(["sh", "-c", "ls -d s* | wc -l; cat pkg/a.py 2>&1 | wc -l"]).output
    seen["caps"] = sandbox.run(["grep", "-c", "^Cap.*:\t0000000000000000$", "/proc/self/status"]).output
    seen["warm"] = sandbox.run(["python", "-m", "unittest", "-h"], warm=True).exit_code
    seen["timeout"] = sandbox.run(["sleep", "100"], limits=Limits(wall_s=0.3)).killed_by
    memory = sandbox.run(["python", "-c", "len(bytearray(900 << 20))"], limits=Limits(memory_mb=256))
    seen["memory"] = [memory.exit_code, memory.killed_by]
    seen["home"] = sandbox.run(["ls", str(root)]).exit_code
backend.close()
seen["left"] = sorted(str(path.relative_to(root)) for path in (root / "layers").glob("[!b]*"))
print(json.dumps(seen))
