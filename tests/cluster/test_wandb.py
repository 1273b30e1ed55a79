"""What W&B records of a run, read back from its own files: whole, in order, and inside the run's folder."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refork.cluster.tracking import Tracking, open_tracking
from refork.cluster.wandb_files import cut_torn_record, history, known_id, last_step, records, segments
from refork.cluster.wandb_sink import About, Table

ABOUT = About("p", "g", ("seed-3", "crr"), {"seed": 3, "git": None, "env": {"id": "refork/Chain-v0"}})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of a run, on a machine where W&B was never used, and which it leaves so."""
    for variable in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(variable)
    before = dict(os.environ)
    for name in ("home", "temporary", "run"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    yield tmp_path / "run"
    assert list((tmp_path / "home").iterdir()) == []
    assert {name for name in os.environ if name.startswith("WANDB")} <= before.keys() | {"WANDB_SERVICE"}


def _opened(run: Path, resume_at: int | None = None) -> Tracking:
    return open_tracking(run, "offline", "abc123", ABOUT, resume_at)


def _log(tracking: Tracking, *steps: int) -> None:
    for step in steps:
        tracking.log(step, {"resolved": step / 10, "total/steps": step * 100.0})


def _close(tracking: Tracking, run: Path, failed: bool = False) -> None:
    """Close, and wait for W&B's own process, which may still be writing."""
    tracking.close(failed)
    deadline = time.monotonic() + 20
    while not _of_kind(segments(run)[-1], "exit"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _rows(run: Path) -> list[list[tuple[int, int, float, float]]]:
    """By segment: step, update, steps, resolved."""
    keys = ("_step", "update", "total/steps", "resolved")
    return [[tuple(row[key] for key in keys) for row in history(segment)] for segment in segments(run)]


def _of_kind(segment: Path, kind: str) -> list[Any]:
    return [getattr(record, kind) for record in records(segment) if record.WhichOneof("record_type") == kind]


def test_an_offline_run_holds_config_group_tags_and_rows(run: Path) -> None:
    tracking = _opened(run)
    assert tracking.run_id == known_id(run) == "abc123"
    _log(tracking, 1, 2)
    _close(tracking, run)
    (segment,) = segments(run)
    (head,) = _of_kind(segment, "run")
    assert (head.run_id, head.project, head.run_group, head.job_type) == ("abc123", "p", "g", "train")
    assert list(head.tags) == ["seed-3", "crr"]
    config = {item.key: json.loads(item.value_json) for item in head.config.update if item.key != "_wandb"}
    assert config == ABOUT.config
    assert _rows(run) == [[(1, 1, 100, 0.1), (2, 2, 200, 0.2)]]
    axes = {metric.glob_name: metric.step_metric for metric in _of_kind(segment, "metric") if metric.glob_name}
    assert axes == {"*": "total/steps"}


def test_a_resumed_run_adds_what_was_lost_and_repeats_nothing(run: Path) -> None:
    first = _opened(run)
    _log(first, 1, 2, 3)
    _close(first, run, failed=True)
    _torn(segments(run)[0], 3)
    assert last_step(run) == 2
    again = _opened(run, resume_at=3)
    _log(again, 4)
    _close(again, run)
    third = _opened(run, resume_at=3)
    _log(third, 4, 5)
    _close(third, run)
    steps = [[row[0] for row in rows] for rows in _rows(run)]
    assert steps == [[1, 2], [3, 4], [5]]
    assert {segment.stem for segment in segments(run)} == {"run-abc123"}


def _torn(segment: Path, step: int) -> None:
    """Leave of a segment what a machine that dies while it writes the row of `step` leaves."""
    content = segment.read_bytes()
    place = content.index(b'"total/steps"' if b'"total/steps"' in content else b"total/steps", _row_at(segment, step))
    segment.write_bytes(content[:place])


def _row_at(segment: Path, step: int) -> int:
    (row,) = (record.SerializeToString() for record in records(segment) if record.history.step.num == step)
    return segment.read_bytes().index(row)


def test_a_torn_record_is_cut_off_once(run: Path) -> None:
    tracking = _opened(run)
    _log(tracking, 1, 2, 3)
    _close(tracking, run)
    (segment,) = segments(run)
    assert not cut_torn_record(segment)
    _torn(segment, 3)
    whole = len(list(records(segment)))
    assert cut_torn_record(segment)
    assert not cut_torn_record(segment)
    assert len(list(records(segment))) == whole
    assert [row["_step"] for row in history(segment)] == [1, 2]


def test_models_and_reports_are_kept_inside_the_run(run: Path) -> None:
    from PIL import Image

    checkpoint = run / "checkpoints" / "step-00000002"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state.json").write_text("{}")
    Image.new("RGB", (4, 3)).save(run / "tree.png")
    tracking = _opened(run)
    _log(tracking, 1, 2)
    tracking.keep("models", lambda r: r.model(checkpoint, ["latest", "best"], {"step": 2, "resolved": 0.2}))
    tracking.keep("reports", lambda r: r.report("fork_tree", run / "tree.png", Table(["a"], [[1], [2]])))
    (checkpoint / "state.json").unlink()  # as keeping only the newest checkpoints does
    _close(tracking, run)
    (segment,) = segments(run)
    model = next(a for a in _of_kind(segment, "artifact") if a.type == "model")
    assert (model.name, set(model.aliases)) == ("model-abc123", {"latest", "best"})
    assert json.loads(model.metadata) == {"step": 2, "resolved": 0.2}
    assert [entry.path for entry in model.manifest.contents] == ["state.json"]
    copy = Path(model.manifest.contents[0].local_path)
    assert copy.read_text() == "{}"
    assert copy.is_relative_to(run)
    last = history(segment)[-1]
    assert (last["_step"], last["report/fork_tree/_type"]) == (2, "image-file")
    assert (segment.parent / "files" / last["report/fork_tree/path"]).is_file()
    assert last["report/fork_tree_table/nrows"] == 2


def test_a_failing_record_is_named_once_and_the_rows_go_on(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracking = _opened(run)
    for _ in range(2):
        tracking.keep("models", lambda r: r.model(run / "nowhere", ["latest"], {}))
    _log(tracking, 1)
    _close(tracking, run)
    (warning,) = (r.message for r in caplog.records if r.name == "refork.tracking")
    assert warning.startswith("wandb: models are not recorded: [Errno 2] No such file or directory")
    assert [row[0] for row in _rows(run)[0]] == [1]
