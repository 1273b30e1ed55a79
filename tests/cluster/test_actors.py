"""Ray actors: the same groups as in one process, whoever plays them and whoever dies."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refork.agents.registry import make_network
from refork.cluster import actors
from refork.cluster.actors import PoolLimits, RayCollector
from refork.cluster.collector import LocalCollector
from refork.cluster.local_ray import LocalRay
from refork.cluster.reaper import holders
from refork.cluster.resources import Need, check_resources
from refork.cluster.rollout import Rollout, RolloutSpec
from refork.envs.chain import ChainEnv
from refork.envs.forkable import BadInput, InfraError, InfraFailure
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.replay.counterfactual import ForkConfig, GroupRequest
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import EnvConfig

from tests.scripts.commands import refork

pytestmark = pytest.mark.ray

SPEC = RolloutSpec(EnvConfig(id="refork/Chain-v0"), "edit_scorer")
WEIGHTS = make_network("edit_scorer", ChainEnv.feature_names, {"hidden": []}, 0).acting_weights()
FORKS = ForkConfig(which="all", forks=1.0)


class Fatal(Rollout):
    """Its process dies when asked for chain-13, hangs when asked for chain-17, and cannot run chain-19."""

    def play(self, unit: GroupRequest, *rest: Any, **more: Any) -> TaskExperience:
        if unit.task == "chain-13":
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.task == "chain-17":
            time.sleep(600)
        if unit.task == "chain-19":
            raise UnsupportedHost("no daemon here")
        return super().play(unit, *rest, **more)


class FatalSpec(RolloutSpec):
    def player(self) -> type[Fatal]:
        return Fatal


@pytest.fixture(scope="module")
def pool() -> Iterator[RayCollector]:
    """One cluster for the tests of this file."""
    collector = RayCollector(
        FatalSpec(SPEC.env, SPEC.agent), Need(2), LocalRay.start(2), limits=PoolLimits(backoff_s=0.01, restarts=2)
    )
    yield collector
    collector.close()
    assert holders(collector._cluster.folder) == []
    assert not collector._cluster.folder.exists()


def _requests(*tasks: str, size: int = 3) -> list[GroupRequest]:
    return [GroupRequest(task, 0, 5, 0, size) for task in tasks]


def _essence(groups: Sequence[TaskExperience]) -> list[Any]:
    """All but times."""
    return [
        (
            g.task,
            g.skipped,
            g.forks,
            [(t.key, t.outcome, [(d.action, d.log_prob) for d in t.decisions]) for t in g.trajectories],
        )
        for g in groups
    ]


def _local(requests: Sequence[GroupRequest]) -> list[Any]:
    return _essence(LocalCollector(SPEC).collect(requests, WEIGHTS, 0, FORKS))


def test_groups_are_those_of_one_process_in_the_order_asked(pool: RayCollector) -> None:
    requests = _requests(*(f"chain-{i}" for i in range(7)))
    assert _essence(pool.collect(requests, WEIGHTS, 0, FORKS)) == _local(requests)


def test_new_weights_are_acted_under_their_version(pool: RayCollector) -> None:
    other = {name: -value for name, value in WEIGHTS.items()} | {"skip": np.ones_like(WEIGHTS["skip"])}
    (group,) = pool.collect(_requests("chain-1"), other, 1)
    assert group.version == 1
    assert group.mains[0].decisions[0].probability != 0.25


def test_a_killed_actor_costs_nothing_but_time(pool: RayCollector) -> None:
    requests = _requests(*(f"chain-{i}" for i in range(20, 30)), size=40)
    pool.collect(requests[:1], WEIGHTS, 2)
    victims, replaced = pool.pids(), pool.replaced
    seen: list[str] = []

    def kill_one(group: TaskExperience) -> None:
        seen.append(group.task)
        if len(seen) == 2:
            os.kill(victims[0], signal.SIGKILL)

    pool._sinks = (kill_one,)
    try:
        assert _essence(pool.collect(requests, WEIGHTS, 2, FORKS)) == _local(requests)
    finally:
        pool._sinks = ()
    assert pool.replaced == replaced + 1
    assert sorted(seen) == sorted(r.task for r in requests)


def test_what_kills_every_player_is_lost_as_infra_and_the_rest_is_played(pool: RayCollector) -> None:
    requests = _requests("chain-12", "chain-13", "chain-14")
    first, lost, last = pool.collect(requests, WEIGHTS, 3, FORKS)
    assert _essence([first, last]) == _local([requests[0], requests[2]])
    assert [type(t.outcome) for t in lost.mains] == [InfraError] * 3
    assert lost.mains[0].outcome.reason.startswith("rollout actor lost: died")  # type: ignore[union-attr]


def test_a_crash_loop_ends_the_run_with_its_cause(pool: RayCollector) -> None:
    with pytest.raises(InfraFailure, match="3 rollout actors died in a row, the last one: died"):
        pool.collect(_requests(*["chain-13"] * 8), WEIGHTS, 4)
    pool._failures = 0
    assert len(pool.collect(_requests("chain-1"), WEIGHTS, 4)) == 1


def test_what_hangs_is_ended_at_its_deadline(pool: RayCollector) -> None:
    pool.start_actors()
    pool._limits = replace(pool._limits, deadline_s=2.0)
    try:
        lost, last = pool.collect(_requests("chain-17", "chain-18"), WEIGHTS, 4)
    finally:
        pool._limits = replace(pool._limits, deadline_s=1800.0)
    assert [type(t.outcome) for t in lost.mains] == [InfraError] * 3
    assert len(last.mains) == 3


def test_errors_of_ours_come_through_as_they_are(pool: RayCollector) -> None:
    with pytest.raises(ValueError, match="'nonsense' is no task of the chain"):
        pool.collect(_requests("nonsense"), WEIGHTS, 5)


def test_what_a_person_is_told_is_the_line_alone(pool: RayCollector) -> None:
    with pytest.raises(UnsupportedHost) as caught:
        pool.collect(_requests("chain-19"), WEIGHTS, 5)
    assert str(caught.value) == "no daemon here"


def test_everything_listens_on_loopback_only(pool: RayCollector) -> None:
    inodes = set()
    for pid in [os.getpid(), *holders(pool._cluster.folder)]:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(descriptor) if descriptor.is_symlink() else ""
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append(fields[1].split(":")[0])
    assert len(listening) > 3
    assert {address for address in listening if not address.endswith("0100007F")} == set()


def test_the_cluster_wants_a_token_that_others_cannot_read(pool: RayCollector) -> None:
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert os.environ["RAY_AUTH_MODE"] == "token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64


STRANGER = "import sys, ray; ray.init(address=sys.argv[1], configure_logging=False); print(ray.nodes())"


def test_a_client_without_the_token_is_refused(pool: RayCollector) -> None:
    address = actors.ray.get_runtime_context().gcs_address
    anonymous = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
    wrong = {**anonymous, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
    for environment in (anonymous, wrong):
        command = [sys.executable, "-c", STRANGER, address]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert "NodeID" not in done.stdout


def test_a_second_run_on_the_host_does_not_meet_the_first(pool: RayCollector, tmp_path: Path) -> None:
    done = refork(tmp_path, "train", "chain_small", "--trainer.updates", "1", "--rollout.actors", "1")
    assert done.returncode == 0, done.stderr
    assert len(pool.collect(_requests("chain-1"), WEIGHTS, 0)) == 1


def test_death_for_lack_of_memory_says_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    died = actors.ray.exceptions.ActorDiedError()
    assert "memory" not in actors._cause(died, actors.kernel_oom_kills())
    before = actors.kernel_oom_kills()
    monkeypatch.setattr(actors, "kernel_oom_kills", lambda: before + 1)
    assert actors._cause(died, before).startswith("out of memory: use fewer actors")


def test_more_actors_than_cores_are_refused_at_once() -> None:
    with pytest.raises(BadInput, match=r"rollout\.actors: 999 actors need as many CPU cores"):
        check_resources(Need(999))
