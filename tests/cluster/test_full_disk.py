"""A rollout actor whose disk for sandboxes is full: nothing that it plays then is a reward."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from refork.cluster.rollout import Rollout, RolloutSpec
from refork.envs.forkable import InfraError, Reward
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.replay.player import GroupRequest
from refork.trainers.config import EnvConfig

from tests.envs.swe.toy import toy_tasks
from tests.small_disk import small_disk

REQUEST = GroupRequest("toy-arithmetic", 0, 1, 2, size=3)


@pytest.fixture
def layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small disk where sandboxes keep their layers."""
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    with small_disk(tmp_path / "home" / "layers", "40m") as place:
        OverlayBackend().close()
        yield place


@pytest.mark.parametrize("before", [True, False])
def test_what_is_played_on_a_full_disk_is_masked_until_there_is_room(
    tmp_path: Path, layers: Path, before: bool
) -> None:
    """`before`: it was full when the actor began."""
    (tmp_path / "set").mkdir()
    toy_tasks(tmp_path / "set", "arithmetic")
    env = EnvConfig(tasks=tmp_path / "set", cache=False)
    rollout = Rollout(RolloutSpec(env, "edit_scorer"))
    try:
        if not before:
            outcomes = rollout.play(REQUEST, {}, 0, baseline="ochiai_greedy").outcomes
            assert {outcome for _, outcome in outcomes} == {Reward(1.0)}
            rollout.close()
            rollout = Rollout(RolloutSpec(env, "edit_scorer"))
        filler = layers / "filler"
        with filler.open("wb", 0) as file, suppress(OSError):
            while file.write(bytes(1 << 12)):
                pass
        outcomes = rollout.play(REQUEST, {}, 0, baseline="ochiai_greedy").outcomes
        assert len(outcomes) == 3
        for _, outcome in outcomes:
            assert isinstance(outcome, InfraError)
            assert "is full" in outcome.reason
        filler.unlink()
        outcomes = rollout.play(REQUEST, {}, 0, baseline="ochiai_greedy").outcomes
        assert {outcome for _, outcome in outcomes} == {Reward(1.0)}
    finally:
        rollout.close()
