"""A Ray cluster of several nodes, started as others would start it, in a network of its own that leads nowhere.

Every node has an address and processes of its own; all see the files of this machine. Needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from refork.cluster.reaper import end_holders

RAY = Path(sys.executable).with_name("ray")
REFORK = Path(sys.executable).with_name("refork")
TOKEN = "5" * 64
PORT, JOB_PORT = 6379, 8265


@dataclass
class Hosts:
    """Nodes that join one head, one `ray start` each."""

    folder: Path
    """Ray's; short, since its sockets lie in it."""
    job_server: bool = False
    """Whether the head has one, on its loopback."""
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _network: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.2:{PORT}"

    @property
    def job_server_address(self) -> str:
        return f"http://127.0.0.1:{JOB_PORT}"

    @property
    def environment(self) -> dict[str, str]:
        """What a person sets to be let in."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}

    def __enter__(self) -> Self:
        up = "ip link set lo up && exec sleep infinity"
        self._network = subprocess.Popen(["unshare", "--net", "sh", "-c", up], start_new_session=True)
        time.sleep(0.3)
        return self

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command, to be run in the network of the nodes."""
        assert self._network is not None
        return ["nsenter", f"--net=/proc/{self._network.pid}/ns/net", *command]

    def add(self, *options: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """A node with `options` of `ray start`, up when this returns; the first one is the head."""
        number = len(self.nodes)
        where = ("--address", self.address) if number else ("--head", "--port", str(PORT))
        own = () if number else ("--temp-dir", str(self.folder), *self._dashboard)
        common = ("--node-ip-address", f"127.0.0.{2 + number}", "--object-store-memory", str(128 << 20), "--block")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        log = self.folder.with_suffix(f".{number}.log")
        with log.open("wb") as out:
            node = subprocess.Popen(
                self.inside(
                    [*(self._own_folder if number else ()), str(RAY), "start", *where, *common, *own, *options]
                ),
                env={
                    **clean,
                    **self.environment,
                    "PATH": f"{RAY.parent}:{os.environ['PATH']}",
                    "OMP_NUM_THREADS": "1",
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.nodes.append(node)
        deadline = time.monotonic() + 90
        while b"block forever" not in log.read_bytes():
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        return node

    @property
    def _own_folder(self) -> tuple[str, ...]:
        """Ray's folder has one path on all nodes: without one of its own, a node throws away what others unpacked."""
        return ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs ray "$0" && exec "$@"', str(self.folder))

    @property
    def _dashboard(self) -> tuple[str, ...]:
        where = ("--dashboard-host", "127.0.0.1", "--dashboard-port", str(JOB_PORT)) if self.job_server else ()
        return ("--include-dashboard", str(self.job_server).lower(), *where)

    def drain(self, node: subprocess.Popen[bytes]) -> None:
        """Tell the cluster that the node will be taken away in a minute."""
        address = f"127.0.0.{2 + self.nodes.index(node)}"
        code = f"import ray; ray.init({self.address!r}); print(*[n['NodeID'] for n in ray.nodes() if n['Alive'] and"
        code += f" n['NodeManagerAddress'] == {address!r}])"
        environment = {**os.environ, **self.environment}
        asked = self.inside([sys.executable, "-c", code])
        found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.split()
        why = ("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot")
        order = ("drain-node", "--address", self.address, "--node-id", found[-1], *why)
        drained = self.inside([str(RAY), *order, "--deadline-remaining-seconds", "60"])
        subprocess.run(drained, env=environment, check=True, capture_output=True)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """As a host dies: all its processes at once."""
        for pid in below(node.pid):
            os.kill(pid, signal.SIGKILL)
        node.wait()

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.poll() is None:
                self.kill(node)
        end_holders(self.folder)
        assert self._network is not None
        self._network.kill()
        self._network.wait()


def below(pid: int) -> list[int]:
    """A process and all that it started, the eldest first."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found
