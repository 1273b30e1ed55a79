"""Metrics are there once, in order, whole; a failure to record warns, a failure to open stops."""

import json
import logging
import math
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from refork.cluster.tracking import Jsonl, Tracking, Wandb, open_tracking, read_metrics, wandb_mode
from refork.envs.forkable import BadInput
from wandb.proto import wandb_internal_pb2

BLOCK = 32768


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
        open_tracking(tmp_path, "p", "off", {}, "id")


def test_wandb_that_cannot_be_opened_stops_the_run(tmp_path: Path) -> None:
    (tmp_path / "wandb").write_text("")
    with pytest.raises(BadInput, match=r"W&B cannot be opened: .*--tracking.wandb offline or off does without"):
        Wandb(tmp_path, "p", "offline", "id", {})


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


def _records(path: Path) -> Iterator[bytes]:
    """The records of a W&B file: 7 bytes of header, then LevelDB log blocks (checksum, length, kind, part)."""
    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def _history(folder: Path) -> list[dict[str, float]]:
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    rows = []
    for data in _records(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item}
            rows.append({key: value for key, value in items.items() if key in ("_step", "resolved")})
    return rows


def test_offline_wandb_holds_the_rows_under_the_given_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    run = tmp_path / "run"
    run.mkdir()
    tracking = open_tracking(run, "p", "offline", {"seed": 3}, "abc123")
    assert tracking.run_id == "abc123"
    tracking.log(1, {"resolved": 0.25})
    tracking.log(2, {"resolved": 0.5})
    tracking.close()
    deadline = time.monotonic() + 20  # W&B's own process may still be writing
    while len(_history(run)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _history(run) == [{"_step": 1, "resolved": 0.25}, {"_step": 2, "resolved": 0.5}]
    assert [p.name.rpartition("-")[2] for p in run.glob("wandb/offline-run-*")] == ["abc123"]
    assert list((tmp_path / "home").iterdir()) == []
