"""Runs in an S3 storage, as a person has them: mirrored, cut off anywhere, gone on with on a machine with an empty
disk."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find

from tests.cluster.s3_server import URL, S3Server
from tests.scripts.commands import SMALL, refork, rows, run_folder, start

STORED = (*SMALL, "--storage", URL, "--tracking.wandb", "off")


@pytest.fixture
def s3() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six updates, never stopped, stored nowhere."""
    folder = tmp_path_factory.mktemp("whole")
    done = refork(folder, "train", *SMALL)
    assert done.returncode == 0, done.stderr
    return run_folder(folder)


def _weights(run: Path) -> tuple[int, bytes]:
    loaded = read(find(run))
    return loaded.step, loaded.state["trainer"]["network"]["skip"].numpy().tobytes()


def _equal(run: Path, whole: Path) -> None:
    assert rows(run) == rows(whole)
    assert _weights(run) == _weights(whole)
    assert sorted(p.name for p in (run / "trajectories").iterdir()) == [f"{at:08d}.jsonl.gz" for at in range(6)]


def test_a_run_goes_on_from_its_url_as_if_never_stopped(tmp_path: Path, s3: S3Server, whole: Path) -> None:
    first = refork(tmp_path, "train", *STORED, "--trainer.updates", "4", "--trainer.horizon", "6", **s3.environment)
    assert first.returncode == 0, first.stderr
    name = run_folder(tmp_path).name
    assert s3.committed(name) == ["step-00000002", "step-00000004"]
    shutil.rmtree(tmp_path / "runs")
    resume = ("train", f"{URL}/{name}", "--resume", "--trainer.updates", "6")
    second = refork(tmp_path, *resume, **s3.environment)
    assert second.returncode == 0, second.stderr
    _equal(run_folder(tmp_path), whole)
    assert s3.committed(name) == ["step-00000004", "step-00000006"]
    assert "writer" not in s3.names(name)


def test_killed_within_an_upload_it_goes_on_by_name_on_an_empty_disk(tmp_path: Path, s3: S3Server, whole: Path) -> None:
    ready = threading.Event()

    def kill(method: str, path: str) -> bool:
        if method == "PUT" and "step-00000004/arrays" in path:
            ready.wait(60)
            os.kill(process.pid, signal.SIGKILL)
        return True

    s3.before = kill
    process = start(tmp_path, "train", *STORED, **s3.environment)
    ready.set()
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    name = run_folder(tmp_path).name
    assert s3.committed(name) == ["step-00000002"]
    assert "writer" in s3.names(name)
    s3.before = lambda _method, _path: True
    shutil.rmtree(tmp_path / "runs")
    done = refork(tmp_path, "train", *STORED, "--resume", **s3.environment)
    assert done.returncode == 0, done.stderr
    assert run_folder(tmp_path).name == name
    _equal(run_folder(tmp_path), whole)


def test_answers_of_500_for_a_while_are_said_once_and_made_up_for(tmp_path: Path, s3: S3Server) -> None:
    s3.before = lambda method, path: not (method == "PUT" and "step-00000002" in path)
    done = refork(tmp_path, "train", *STORED, **s3.environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("a checkpoint could not be sent") == 1
    assert "answers again; step-00000004 is there" in done.stderr
    assert s3.committed(run_folder(tmp_path).name) == ["step-00000004", "step-00000006"]


def test_a_server_that_dies_does_not_end_training_but_is_an_error_at_the_end(tmp_path: Path, s3: S3Server) -> None:
    def die(method: str, path: str) -> bool:
        if method == "PUT" and "step-00000004/arrays" in path:
            threading.Thread(target=s3.stop).start()
            return False
        return True

    s3.before = die
    done = refork(tmp_path, "train", *STORED, **s3.environment)
    assert done.returncode == 1
    assert "the last checkpoint, step-00000006, is not there: " in done.stderr.splitlines()[-1]
    assert _weights(run_folder(tmp_path))[0] == 6


def test_wrong_keys_and_a_bucket_that_is_not_there_are_said_before_anything_starts(
    tmp_path: Path, s3: S3Server
) -> None:
    s3.only_known_keys()
    known = s3.environment
    for environment, storage, said in (
        ({**known, "AWS_ACCESS_KEY_ID": "wrong"}, URL, "cannot be written: PermissionError: The AWS Access Key Id"),
        ({**known, "AWS_SECRET_ACCESS_KEY": "wrong"}, URL, "The request signature we calculated does not match"),
        (known, "s3://missing/runs", "The specified bucket does not exist"),
    ):
        done = refork(tmp_path, "train", *STORED, "--storage", storage, **environment)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert said in line
        assert line.endswith("check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL")
    assert list(tmp_path.glob("runs")) == []
    assert refork(tmp_path, "train", *STORED, **known).returncode == 0
