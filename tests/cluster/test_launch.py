"""What is sent to a cluster, and what is checked of it, without one."""

import platform
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from refork.cluster.launch_address import check_versions
from refork.cluster.launch_job import on_cluster, outside_paths, write_folder
from refork.cluster.launch_server import exit_code
from refork.cluster.launch_wheel import build_wheel
from refork.envs.forkable import BadInput, InfraFailure
from refork.scripts.job import read_job

RAY, PYTHON = version("ray"), platform.python_version()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_is_this_refork_and_small(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"refork", f"refork-{version('refork')}.dist-info"}
    assert "refork/scripts/launch.py" in names
    assert wheel.stat().st_size < 3 << 20


def test_equal_content_has_one_name_and_another_content_another(wheel: Path, tmp_path: Path) -> None:
    again = build_wheel(tmp_path)
    assert (again.name, again.read_bytes()) == (wheel.name, wheel.read_bytes())
    assert re.fullmatch(rf"refork-{version('refork')}-0_[0-9a-f]{{16}}-py3-none-any\.whl", wheel.name)


def test_a_node_installs_it_without_asking_an_index(wheel: Path, tmp_path: Path) -> None:
    """As Ray does: with dependencies, here where there are none to be had."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", f"--target={tmp_path / 'node'}", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    ask = "from importlib.metadata import version, files; print(version('refork'))"
    env = {"PYTHONPATH": str(tmp_path / "node")}
    said = subprocess.run([sys.executable, "-c", ask], env=env, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == version("refork")

    built_there = "from pathlib import Path; from refork.cluster.launch_wheel import build_wheel as b; import sys; "
    built_there += "print(b(Path(sys.argv[1])).name)"
    (tmp_path / "again").mkdir()
    said = subprocess.run(
        [sys.executable, "-c", built_there, str(tmp_path / "again")], env=env, capture_output=True, text=True
    )
    assert said.stdout.strip() == wheel.name, said.stderr  # an ordinary installation makes the same one


def test_only_the_job_is_sent_beside_it(tmp_path: Path) -> None:
    job = on_cluster(read_job("chain_small", ["--runs", "/shared/runs", "--rollout.actors", "2"]))
    write_folder(job, tmp_path / "job")
    assert [path.name for path in (tmp_path / "job").iterdir()] == ["job.toml"]
    assert read_job(str(tmp_path / "job" / "job.toml")) == job
    assert job.cluster.address == "auto"


def test_a_job_of_one_process_starts_no_ray(tmp_path: Path) -> None:
    assert on_cluster(read_job("chain_small", ["--runs", "/shared/runs"])).cluster.address == "local"


def test_files_that_the_job_names_are_listed_with_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = read_job("chain_small", ["--runs", "/shared/runs", "--env.tasks", "set"])
    assert outside_paths(job) == {"env.tasks": str(tmp_path / "set")}


@pytest.mark.parametrize(
    ("ray", "python", "said"),
    [
        ("2.9.3", PYTHON, f"the cluster has Ray 2.9.3, this machine {RAY}; install Ray 2.9.3 here, or {RAY} on all"),
        (RAY, "3.8.10", "the cluster has Python 3.8, this machine 3."),
    ],
)
def test_other_versions_are_refused(ray: str, python: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        check_versions({"ray_version": ray, "python_version": python}, "http://127.0.0.1:8265")


def ended(**known: Any) -> Any:
    return SimpleNamespace(**{"submission_id": "raysubmit_1", "status": "FAILED", "message": "", **known})


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (-11, "Segmentation fault", "raysubmit_1: ended by SIGSEGV: a crash outside of Python"),
        (137, "", "raysubmit_1: ended by SIGKILL"),
        (2, "*** SIGSEGV received at time=1 ***", "raysubmit_1: ended with exit code 2 and not a word about it"),
    ],
)
def test_a_crash_is_no_bad_input(code: int, message: str, said: str) -> None:
    with pytest.raises(InfraFailure, match=said):
        exit_code(ended(driver_exit_code=code, message=message))


def test_the_exit_code_is_that_of_the_command() -> None:
    assert exit_code(ended(driver_exit_code=2, message="exit code 2, last lines:\nrefork: no such file")) == 2
    assert exit_code(ended(driver_exit_code=1)) == 1
    assert exit_code(ended(driver_exit_code=130, message="refork: interrupted")) == 130
    assert exit_code(ended(status="STOPPED", driver_exit_code=None)) == 130
    assert exit_code(ended(status="SUCCEEDED", driver_exit_code=0)) == 0


def test_another_patch_of_python_is_let_through() -> None:
    check_versions({"ray_version": RAY, "python_version": PYTHON.rsplit(".", 1)[0] + ".99"}, "http://h:8265")
