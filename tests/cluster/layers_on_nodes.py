"""Run inside the network of a cluster whose nodes `one` and `two` have homes of their own: forks states across them.

Prints a JSON line for each thing seen. When it says that it waits, node `one` is to be killed and a line to be sent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from refork.cluster.layer_service import ClusterDepot, LayerServices
from refork.cluster.layer_storage import StorageDepot
from refork.cluster.local_ray import ray, stay_on_loopback
from refork.cluster.storage import open_storage
from refork.envs.forkable import InfraFailure, StateRef
from refork.envs.swe.lazy_sandbox import LazySandbox, Step
from refork.envs.swe.sandbox.base import Limits, SandboxSpec, digest_state
from refork.envs.swe.sandbox.layer_sharing import publish
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.sandbox.overlay import OverlayBackend

CHANGE = "echo 2 > a.py; rm README; rm -r d; mkdir d; echo new > d/new; chmod 700 d; ln -s nowhere l"
LIST = "find . -printf '%p %y %m %l\\n' | sort; cat a.py d/new"


class Player:
    """Plays in one workspace on the node that it is on."""

    def __init__(self, base: Path, storage: str) -> None:
        self.kept = StorageDepot(open_storage(storage))
        self.backend = OverlayBackend(depots=[ClusterDepot(), self.kept])
        self.spec = SandboxSpec(base, digest_tree(base), preload=())
        self.sandbox = self.backend.open(self.spec)

    def play(self, command: str) -> tuple[StateRef, str]:
        """Run it and freeze what it led to."""
        shown = self.sandbox.run(["sh", "-c", command]).output
        return self.sandbox.snapshot(), shown

    def write(self, size: int) -> StateRef:
        self.sandbox.put({"/testbed/edit.py": os.urandom(size)})
        return self.sandbox.snapshot()

    def restore(self, ref: StateRef) -> tuple[str, float]:
        """The state id found, and the seconds it took."""
        started = time.perf_counter()
        self.sandbox.restore(ref)
        return self.sandbox.state_id, time.perf_counter() - started

    def retain(self, ref: StateRef) -> None:
        self.backend.retain(ref)

    def leave(self, folder: Path) -> StateRef:
        """A state made in a store that no service knows, put into the cluster; that store is then removed."""
        own = OverlayBackend(folder, depots=[ClusterDepot()])
        sandbox = own.open(self.spec)
        sandbox.put({"/testbed/left": os.urandom(5 << 20)})
        ref = sandbox.snapshot()
        publish(own.store, ref, ClusterDepot())
        own.close()
        return ref

    def lost(self, ref: StateRef) -> str:
        """What is said of a state that nobody has."""
        try:
            self.sandbox.restore(ref)
        except InfraFailure as failure:
            return str(failure)
        return "restored"

    def again(self, ref: StateRef, commands: list[tuple[str, str]]) -> str:
        """The state that a path of (command, state id) leads to, by the reference or, else, by the commands."""
        lazy = LazySandbox(self.backend, self.spec, Limits())
        lazy.know(ref)
        return lazy.at(tuple(Step(*step) for step in commands)).state_id

    def layers(self) -> list[str]:
        return sorted(path.name for path in self.backend.store.root.iterdir() if path.name.startswith("c-"))

    def close(self) -> None:
        self.backend.close()


def say(**seen: Any) -> None:
    print(json.dumps(seen), flush=True)


def main(address: str, base: Path, storage: str) -> None:
    stay_on_loopback(False)
    ray.init(address=address, configure_logging=False, log_to_driver=False)
    services = LayerServices()
    services.start()
    one, two = (ray.remote(Player).options(resources={n: 1}).remote(base, storage) for n in ("one", "two"))

    made, _ = ray.get(one.play.remote(CHANGE))
    found, _ = ray.get(two.restore.remote(made))
    say(what="forked", made=made.state_id, found=found, ids=made.payload["ids"], layers=ray.get(two.layers.remote()))
    say(what="lists", one=ray.get(one.play.remote(LIST))[1], two=ray.get(two.play.remote(LIST))[1])

    further, _ = ray.get(two.play.remote("echo further > further"))
    found, _ = ray.get(one.restore.remote(further))
    say(what="back", made=further.state_id, found=found, layers=ray.get(one.layers.remote()))

    left = ray.get(one.leave.remote(base.parent / "apart"))
    found, _ = ray.get(two.restore.remote(left))
    say(what="left", made=left.state_id, found=found)

    for size in (1 << 10, 64 << 20):
        took = []
        for _ in range(5 if size < 1 << 20 else 2):
            ref = ray.get(one.write.remote(size))
            found, seconds = ray.get(two.restore.remote(ref))
            took.append(seconds if found == ref.state_id else float("inf"))
        say(what="speed", size=size, ms=sorted(took)[len(took) // 2] * 1e3)

    stored, _ = ray.get(one.play.remote("rm edit.py; echo stored > stored"))
    ray.get(one.retain.remote(stored))
    unstored, _ = ray.get(one.play.remote("echo unstored > unstored"))
    say(what="waits")
    sys.stdin.readline()
    started = time.perf_counter()
    found, _ = ray.get(two.restore.remote(stored))
    say(what="stored", made=stored.state_id, found=found, seconds=time.perf_counter() - started)
    say(what="lost", said=ray.get(two.lost.remote(unstored)))
    start = digest_state(digest_tree(base), {})
    ray.get(two.restore.remote(StateRef(start, {"layers": []})))
    path = [(CHANGE, made.state_id)]
    gone = StateRef(made.state_id, {"layers": ["ffffff.1"], "ids": ["f" * 32], "bytes": 0})
    say(what="again", base=start, made=made.state_id, found=ray.get(two.again.remote(gone, path)))
    ray.get(two.close.remote())
    services.close()
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
