"""What a run needs against what there is, and what is said of a cluster that cannot be joined; nothing is started."""

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refork.cluster.local_ray import ray
from refork.cluster.resources import Need, check_cluster, need_of
from refork.cluster.running_ray import JoinedRay
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig


@given(st.integers(0, 40), st.integers(1, 9))
def test_every_actor_is_exactly_one_learners(actors: int, learners: int) -> None:
    need = Need(actors, learners, 2.0, {"sandbox": 1.0})
    parts = [need.of_learner(rank) for rank in range(learners)]
    assert sum(part.actors for part in parts) == actors
    assert max(p.actors for p in parts) - min(p.actors for p in parts) <= 1
    assert {(p.cpus, p.learners, tuple(p.resources)) for p in parts} == {(2.0, 1, ("sandbox",))}


def test_what_is_needed_in_all() -> None:
    assert Need(3, 1, 0.5, {"sandbox": 2.0}).total == {"CPU": 1.5, "sandbox": 6.0}
    assert Need(4, 2).total == {"CPU": 6.0}
    assert Need().total == {"CPU": 0.0}


def test_learners_without_an_actor_are_refused() -> None:
    job = {"trainer": {"kind": "crr"}, "rollout": {"actors": 2}, "cluster": {"learners": 3}}
    with pytest.raises(BadInput, match=r"rollout\.actors: 2 for 3 learners; every learner has its own"):
        need_of(JobConfig.model_validate(job))


NODES = [{"CPU": 4.0}, {"CPU": 2.0, "sandbox": 1.0}, {"CPU": 2.0, "sandbox": 1.0}]


@pytest.mark.parametrize(
    ("need", "said"),
    [
        (Need(9), "9 rollout actors and 1 learners need 9 CPU, its 3 nodes have 8 in all"),
        (Need(7, 2), "need 9 CPU"),
        (Need(3, resources={"sandbox": 1.0}), "need 3 sandbox, its 3 nodes have 2 in all"),
        (Need(1, resources={"gpu_box": 1.0}), "need 1 gpu_box, its 3 nodes have 0 in all"),
        (Need(3, cpus=2.5), "its nodes have room for 1 rollout actors of 2.5 CPU, not 3"),
        (Need(2, cpus=3.0, resources={"sandbox": 1.0}), "room for 0 rollout actors of 3 CPU, 1 sandbox, not 2"),
    ],
)
def test_what_would_wait_for_ever_is_refused(need: Need, said: str) -> None:
    with pytest.raises(BadInput, match=f"cluster.address here: .*{said}"):
        check_cluster(need, NODES, "here")


@pytest.mark.parametrize("need", [Need(8), Need(4, 4), Need(2, resources={"sandbox": 1.0}), Need(2, cpus=2.0)])
def test_what_has_room_is_let_through(need: Need) -> None:
    check_cluster(need, NODES, "here")


def test_an_address_where_nothing_listens_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BadInput, match=rf"cluster\.address 127\.0\.0\.1:{port}: nothing answers there"):
        JoinedRay.join(f"127.0.0.1:{port}", Need(1))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:99999999", "nothing answers there"),
        ("127.0.0.1:port", "is neither local, auto nor HOST:PORT"),
        ("nonsense", "is neither local, auto nor HOST:PORT"),
        ("http://127.0.0.1:8265", "is a job server: use `refork launch`"),
    ],
)
def test_what_is_no_address_is_said(address: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        JoinedRay.join(address, Need(1))


def test_other_versions_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.1.0\n    Python: 3.9.1")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(BadInput, match=r"auto: Version mismatch: .* Ray: 2\.1\.0 Python: 3\.9\.1; install on both"):
        JoinedRay.join("auto", Need(1))


def test_auto_without_a_cluster_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(BadInput, match=r"cluster\.address auto: this machine is part of no Ray cluster"):
        JoinedRay.join("auto", Need(1))
