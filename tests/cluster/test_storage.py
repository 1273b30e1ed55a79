"""A storage by its URL: files whole or not there, one writer, copies of runs cut off at any point."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from refork.cluster.checkpoint import CheckpointStore, read
from refork.cluster.checkpoint_folder import committed, find
from refork.cluster.retention import Retention
from refork.cluster.run_folder import RunFolder, create
from refork.cluster.storage import Storage, open_storage
from refork.cluster.storage_fetch import fetch, newest_stored, stored_run
from refork.cluster.storage_mirror import Mirror
from refork.cluster.storage_writer import TakenOver, claim, is_claimed, writing
from refork.envs.forkable import BadInput
from refork.scripts.job import read_job

NAME = "x-20260101-000000"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(f"file://{tmp_path}/shared")


def _run(runs: Path, *steps: int) -> Path:
    """A run's folder with what is sent of it, and checkpoints at `steps`."""
    run = runs / NAME
    store = CheckpointStore(run / "checkpoints", Retention(9))
    (run / "trajectories").mkdir(exist_ok=True)
    (run / "job.toml").write_text('name = "x"\n')
    for step in steps:
        _update(run, store, step)
    return run


def _update(run: Path, store: CheckpointStore, step: int) -> None:
    (run / "metrics.jsonl").open("a").write(json.dumps({"step": step}) + "\n")
    (run / "trajectories" / f"{step - 1:08d}").write_text(f"of {step}")
    store.save(step, {"step": step})


def _mirror(storage: Storage, run: Path, retention: Retention | None = None) -> Mirror:
    claim(storage.below(run.name), run)
    return Mirror(storage.below(run.name), run, retention or Retention(9))


def test_a_probe_leaves_nothing_and_files_are_told_with_their_size(tmp_path: Path, storage: Storage) -> None:
    assert list((tmp_path / "shared").iterdir()) == []
    storage.write("a/b", b"123")
    (tmp_path / "shared" / "a" / "c.part").write_bytes(b"half")
    assert storage.files() == {"a/b": 3}
    assert storage.read("a/b") == b"123"
    assert storage.read("a/missing") is None
    assert storage.below("none").files() == {}
    assert storage.below("none").folders() == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/shared/runs", "'/shared/runs' is no URL of a folder; give one such as s3://bucket/runs"),
        ("file://", "is no URL of a folder"),
        ("s4://bucket/runs", "unknown protocol 's4'; common ones: file, s3"),
        ("sftp://host/runs", 'sftp needs a package that is not installed: .*"paramiko"'),
        ("file:///proc/runs", "file:///proc/runs: cannot be written: FileNotFoundError: .*; check the path"),
    ],
)
def test_what_is_no_storage_is_said(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        open_storage(url)


def test_what_was_sent_is_fetched_and_kept_by_the_rule(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs", 1, 2, 3)
    mirror = _mirror(storage, run, Retention(1, every=2))
    for path in committed(run / "checkpoints"):
        mirror.push(path)
    there, _ = storage.below(NAME).checkpoints()
    assert there == ["step-00000002", "step-00000003"]
    copy = fetch(stored_run(f"file://{tmp_path}/shared/{NAME}"), tmp_path / "other")
    assert read(find(copy)).state == {"step": 3}
    assert [path.name for path in committed(copy / "checkpoints")] == ["step-00000003"]
    assert (copy / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert sorted(path.name for path in (copy / "trajectories").iterdir()) == ["00000000", "00000001", "00000002"]


def test_one_checkpoint_is_fetched_by_its_url(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs", 1, 2)
    mirror = _mirror(storage, run)
    for path in committed(run / "checkpoints"):
        mirror.push(path)
    url = f"file://{tmp_path}/shared/{NAME}"
    assert read(find(fetch(stored_run(f"{url}/checkpoints/step-00000001"), tmp_path / "other"))).step == 1
    with pytest.raises(BadInput, match="no committed checkpoint step-00000009; there: step-00000001, step-00000002"):
        fetch(stored_run(f"{url}/checkpoints/step-00000009"), tmp_path / "other")


def test_a_copy_that_is_behind_gets_what_it_lacks_and_one_that_is_ahead_stays(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs", 1)
    mirror = _mirror(storage, run)
    mirror.push(find(run))
    url = f"file://{tmp_path}/shared/{NAME}"
    (tmp_path / "other" / f".fetch-{NAME}-99999999" / "checkpoints").mkdir(parents=True)
    copy = fetch(stored_run(url), tmp_path / "other")
    (copy / "own").write_text("kept")
    _update(run, CheckpointStore(run / "checkpoints", Retention(9)), 2)
    mirror.push(find(run))
    with RunFolder(copy), pytest.raises(BadInput, match="is running this run"):
        fetch(stored_run(url), tmp_path / "other")
    assert fetch(stored_run(url), tmp_path / "other") == copy
    assert (read(find(copy)).step, (copy / "own").read_text()) == (2, "kept")
    assert (copy / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    _update(copy, CheckpointStore(copy / "checkpoints", Retention(9)), 3)
    fetch(stored_run(url), tmp_path / "other")
    assert read(find(copy)).step == 3
    assert [path.name for path in (tmp_path / "other").iterdir()] == [NAME]


def test_the_newest_run_of_a_name_that_has_a_checkpoint_is_found(tmp_path: Path, storage: Storage) -> None:
    _mirror(storage, run := _run(tmp_path / "runs", 1)).push(find(run))
    storage.write("x-20260102-000000/job.toml", b"")
    storage.write("x-small-20260103-000000/checkpoints/step-00000001/COMMIT", b"")
    found = newest_stored(f"file://{tmp_path}/shared", "x")
    assert found is not None
    assert found.name == NAME
    assert newest_stored(f"file://{tmp_path}/shared", "y") is None


def test_no_run_at_a_url_names_those_there_are(tmp_path: Path, storage: Storage) -> None:
    _mirror(storage, run := _run(tmp_path / "runs", 1)).push(find(run))
    with pytest.raises(BadInput, match=f"shared/none: no such run; runs: {NAME}"):
        stored_run(f"file://{tmp_path}/shared/none").job(tmp_path / "scratch")


_KILLED = """
import os, signal, sys
from pathlib import Path
from refork.cluster.checkpoint_folder import find
from refork.cluster.retention import Retention
from refork.cluster.storage import open_storage
from refork.cluster.storage_mirror import Mirror

url, run, fatal = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
mirror = Mirror(open_storage(url, probe=False).below(run.name), run, Retention(1))
count = 0
def hook(event, arguments):
    global count
    if event in {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.copyfile"}:
        if any(url.removeprefix("file://") in str(argument) for argument in arguments):
            count += 1
            if count == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
mirror.push(find(run))
print(count)
"""


def _push_killed_at(url: str, run: Path, point: int) -> int:
    """In a forked child, which spares the imports; its wait status."""
    child = os.fork()
    if child == 0:
        sys.argv = ["-", url, str(run), str(point)]
        try:
            exec(compile(_KILLED.replace("print(count)", ""), "killed", "exec"), {})
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


def test_killed_at_any_point_of_sending_a_whole_checkpoint_is_there(tmp_path: Path) -> None:
    def sent_once(folder: Path) -> tuple[str, Path]:
        run, url = _run(folder / "runs", 1), f"file://{folder}/shared"
        _mirror(open_storage(url), run).push(find(run))
        _update(run, CheckpointStore(run / "checkpoints", Retention(9)), 2)
        return url, run

    url, run = sent_once(tmp_path / "whole")
    command = [sys.executable, "-c", _KILLED, url, str(run), "-1"]
    points = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert points > 15
    for point in range(1, points + 1):
        url, run = sent_once(tmp_path / str(point))
        assert _push_killed_at(url, run, point) == signal.SIGKILL, point
        copy = fetch(stored_run(f"{url}/{NAME}"), tmp_path / str(point) / "other")
        loaded = read(find(copy))
        assert loaded.state == {"step": loaded.step}, point
        rows = [json.loads(line)["step"] for line in (copy / "metrics.jsonl").read_text().splitlines()]
        assert rows[: loaded.step] == list(range(1, loaded.step + 1)), point
        Mirror(open_storage(url).below(NAME), run, Retention(1)).push(find(run))
        assert os.listdir(tmp_path / str(point) / "shared" / NAME / "checkpoints") == ["step-00000002"], point
        assert open_storage(url).below(NAME).checkpoints()[0] == ["step-00000002"], point


def _claimed_by(storage: Storage, **owner: object) -> None:
    storage.below(NAME).write("writer", json.dumps({"host": "elsewhere", "pid": 1, "started": "5", **owner}).encode())


def test_a_living_writer_on_this_host_is_not_put_aside(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs", 1)
    with writing(storage, run), pytest.raises(BadInput, match=f"process {os.getpid()} on this host is running this"):
        claim(storage.below(NAME), run)
    assert storage.below(NAME).read("writer") is None


def test_a_dead_writer_on_this_host_is_taken_over_from(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs", 1)
    claim(storage.below(NAME), run)
    mine = json.loads((run / "writer").read_text())
    _claimed_by(storage, **{**mine, "started": "1"})
    with writing(storage, run):
        assert storage.below(NAME).read("writer") == (run / "writer").read_bytes()


def test_a_writer_that_was_put_aside_stops_and_sends_nothing(
    tmp_path: Path, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    run = _run(tmp_path / "runs", 1)
    mirror = _mirror(storage, run)
    _claimed_by(storage, token="other")
    with pytest.raises(TakenOver, match="elsewhere has taken this run over; this one stops"):
        mirror.push(find(run))
    assert storage.below(NAME).checkpoints()[0] == []
    claim(storage.below(NAME), run)
    assert "taken over from elsewhere; should it still run, it stops" in caplog.text
    mirror.push(find(run))
    assert storage.below(NAME).checkpoints()[0] == ["step-00000001"]


def test_a_new_run_takes_no_name_that_another_machine_has_taken(tmp_path: Path, storage: Storage) -> None:
    job = read_job("chain_small", ["--runs", str(tmp_path / "runs")])
    storage.write("taken/writer", b"{}")
    assert is_claimed(storage, "taken")
    tried: list[str] = []
    with create(job, lambda name: not tried.append(name) and len(tried) == 1) as folder:  # type: ignore[func-returns-value]
        assert folder.path.name == f"{tried[0]}.2"


def test_a_storage_that_fails_is_tried_again_after_1_2_4_checkpoints(tmp_path: Path, storage: Storage) -> None:
    run = _run(tmp_path / "runs")
    mirror, store = _mirror(storage, run), CheckpointStore(run / "checkpoints", Retention(99))
    (tmp_path / "shared" / NAME / "trajectories").write_text("a file where a folder should be")
    tried = []
    for step in range(1, 13):
        mirror.why = ""
        _update(run, store, step)
        mirror.push(find(run))
        tried += [step] if mirror.why else []
    assert tried == [1, 2, 4, 8]
    (tmp_path / "shared" / NAME / "trajectories").unlink()
    mirror.push(find(run), now=True)
    assert mirror.there == "step-00000012"
