import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from refork.envs.chain import ChainEnv
from refork.envs.forkable import BadInput, InfraError, Timeout
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience, Trajectory

from tests.replay.test_counterfactual import LinearPolicy


def _experience(episode: int = 0) -> TaskExperience:
    config = ForkConfig(which="all", forks=2, replays=1)
    request = GroupRequest("chain-3", episode, 0, 0, 3)
    return collect_group(ChainEnv("chain-3"), LinearPolicy(), request, config, version=4)


def _without_observations(experience: TaskExperience) -> TaskExperience:
    def bare(trajectory: Trajectory) -> Trajectory:
        return replace(trajectory, decisions=tuple(replace(d, observation=None) for d in trajectory.decisions))

    mains, branches = (tuple(map(bare, ts)) for ts in (experience.mains, experience.branches))
    return replace(experience, mains=mains, branches=branches)


def test_all_but_observations_comes_back(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "run" / "trajectories")
    experience = _experience()
    unjudged = [replace(t, outcome=o) for t, o in zip(experience.mains, (InfraError("é"), Timeout("x")), strict=False)]
    experience = replace(experience, mains=(*unjudged, *experience.mains[2:]))
    store.write(7, [experience, _experience(1)])
    first, second = TrajectoryStore(tmp_path / "run" / "trajectories").read(7)
    assert (first.version, second.episode) == (4, 1)
    assert [m.outcome for m in first.mains] == [m.outcome for m in experience.mains]
    assert first.forks == experience.forks
    for got, put in zip(first.trajectories, experience.trajectories, strict=True):
        assert (got.key, got.origin, got.steps_executed, got.seconds) == (
            put.key,
            put.origin,
            put.steps_executed,
            put.seconds,
        )
        for d, e in zip(got.decisions, put.decisions, strict=True):
            assert (d.state_id, d.action, d.log_prob, d.probability, d.entropy) == (
                e.state_id,
                e.action,
                e.log_prob,
                e.probability,
                e.entropy,
            )


def test_a_recorded_decision_can_be_restored(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(0, [_experience()])
    decision = store.find("chain-3", attempt=2).decisions[13]
    env = ChainEnv("chain-3")
    assert decision.ref is not None
    env.restore(decision.ref)
    assert env.state_id == decision.state_id


def test_the_newest_is_found_first(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    for episode in range(3):
        store.write(episode, [_experience(episode)])
    assert store.find("chain-3").key == "chain-3/2/0"
    assert store.find("chain-3", 1).key == "chain-3/1/0"
    assert store.find("chain-3", 1, 2).key == "chain-3/1/2"


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (("chain-9",), r"no trajectory of chain-9; tasks recorded: chain-3 \(1 in all\)"),
        (("chain-3", 5), "no trajectory of chain-3 in episode 5"),
        (("chain-3", 0, 99), "has no attempt 99; there are 0 to "),
    ],
)
def test_what_is_not_there_is_said(tmp_path: Path, which: tuple, message: str) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(0, [_experience()])
    with pytest.raises(BadInput, match=message):
        store.find(*which)


def test_resuming_drops_later_updates(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    for update in range(5):
        store.write(update, [])
    store.drop_from(3)
    assert store.updates() == [0, 1, 2]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TrajectoryStore(tmp_path)
    store.write(0, [_experience()])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.write(0, [])
    assert len(store.read(0)) == 1
    assert store.updates() == [0]


@pytest.mark.parametrize("keep", [10, 300])
def test_a_damaged_file_is_named(tmp_path: Path, keep: int) -> None:
    store = TrajectoryStore(tmp_path)
    path = store.write(0, [_experience()])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInput, match=r"00000000.jsonl.gz: line 1 cannot be read"):
        store.read(0)
    path.write_bytes(gzip.compress(b"{}\nnot json\n"))
    with pytest.raises(BadInput, match="line 2 cannot be read"):
        list(store._lines(0))
