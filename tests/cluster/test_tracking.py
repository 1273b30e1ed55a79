"""Metrics are there once, in order, whole; a failure to record warns, a failure to open stops."""

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from refork.cluster.tracking import Jsonl, Tracking, open_tracking, read_metrics
from refork.cluster.wandb_sink import About, Wandb, wandb_mode
from refork.envs.forkable import BadInput

ABOUT = About("p", "g", (), {})


class Broken:
    """A sink that fails at every call."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        raise OSError("disk full")

    def close(self, failed: bool) -> None:
        raise RuntimeError("gone")


def _steps(path: Path) -> list[int]:
    return [row["step"] for row in read_metrics(path)]


def test_rows_are_json_lines_that_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    sink = Jsonl(tmp_path / "metrics.jsonl")
    sink.log(1, {"resolved": 0.25, "forks": 3})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "resolved": 0.25, "forks": 3}\n'
    sink.close()


def test_numbers_json_lacks_become_null(tmp_path: Path) -> None:
    sink = Jsonl(tmp_path / "m.jsonl")
    sink.log(1, {"a": math.nan, "b": math.inf, "c": 1.5})
    sink.close()
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {"step": 1, "a": None, "b": None, "c": 1.5}


def test_resuming_drops_the_rows_beyond_the_checkpoint_and_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text("".join(f'{{"step": {i}}}\n' for i in range(1, 6)) + '{"step": 6, "res')
    sink = Jsonl(path, resume_at=3)
    assert _steps(path) == [1, 2, 3]
    sink.log(4, {})
    sink.close()
    assert _steps(path) == [1, 2, 3, 4]


def test_a_step_back_is_a_mistake_of_ours(tmp_path: Path) -> None:
    tracking = Tracking({"metrics.jsonl": Jsonl(tmp_path / "m.jsonl")})
    tracking.log(5, {})
    with pytest.raises(ValueError, match="logged step 4 after 5"):
        tracking.log(4, {})
    again = Tracking({})
    again.load_state_dict(tracking.state_dict())
    with pytest.raises(ValueError, match="logged step 4 after 5"):
        again.log(4, {})


def test_a_failing_sink_is_named_once_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracking = Tracking({"broken": Broken(), "metrics.jsonl": Jsonl(tmp_path / "m.jsonl")})
    with caplog.at_level(logging.WARNING):
        tracking.log(1, {})
        tracking.log(2, {})
        tracking.close()
    assert [r.message for r in caplog.records] == ["broken: metrics are not recorded: disk full; the run goes on"]
    assert _steps(tmp_path / "m.jsonl") == [1, 2]


def test_what_cannot_be_opened_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"metrics\.jsonl: metrics cannot be written: Is a directory"):
        open_tracking(tmp_path, "off", "id", ABOUT)


def test_wandb_that_cannot_be_opened_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "wandb").write_text("")
    with pytest.raises(BadInput, match=r"W&B cannot be opened: .*--tracking.wandb offline or off does without"):
        Wandb(tmp_path, "offline", "id", ABOUT)


def test_auto_is_online_only_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert wandb_mode("auto") == "offline"
    assert wandb_mode("off") == "off"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x")
    assert wandb_mode("auto") == "online"
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert wandb_mode("auto") == "online"
