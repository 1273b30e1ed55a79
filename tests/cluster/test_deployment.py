"""The files that start clusters: each by the tool or the schema that will read it, and what all of them must hold."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

CLUSTER = Path(__file__).parents[2] / "cluster"
SCHEMAS = Path(__file__).parent / "schemas"
STARTING = ("rayjob.yaml", "cluster.yaml", "slurm.sbatch", "sky.yaml")
BIN = Path(sys.executable).parent


def loaded(name: str) -> Any:
    return yaml.safe_load((CLUSTER / name).read_text())


def schema(name: str) -> Any:
    return json.loads((SCHEMAS / name).read_text())


def commands(name: str) -> str:
    """A file without its comments."""
    return "\n".join(line for line in (CLUSTER / name).read_text().splitlines() if not line.lstrip().startswith("#"))


@pytest.mark.parametrize("name", STARTING)
def test_no_cluster_without_a_token_and_nothing_of_the_source_tree(name: str) -> None:
    text = commands(name)
    assert re.search(r"RAY_AUTH_MODE=token|mode: token", text)
    assert "working_dir" not in text
    assert "workdir" not in text
    assert not re.search(r"token[^\n]*[0-9a-f]{32}", text)


@pytest.mark.parametrize("name", ["cluster.yaml", "slurm.sbatch", "sky.yaml"])
def test_the_dashboard_is_on_loopback(name: str) -> None:
    assert "--dashboard-host=127.0.0.1" in commands(name)


def test_rayjob_is_what_its_schema_says() -> None:
    jsonschema.validate(loaded("rayjob.yaml"), schema("rayjob.json"))


def test_no_pod_has_root_or_rights() -> None:
    spec = loaded("rayjob.yaml")["spec"]["rayClusterSpec"]
    assert spec["headGroupSpec"]["serviceType"] == "ClusterIP"
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_rayjob_runs_the_ray_that_is_pinned() -> None:
    pins = (CLUSTER.parent / "constraints.txt").read_text()
    assert f"ray=={loaded('rayjob.yaml')['spec']['rayClusterSpec']['rayVersion']}\n" in pins


@pytest.mark.parametrize("there", [False, True])
def test_a_retry_of_rayjob_goes_on_with_the_run(tmp_path: Path, there: bool) -> None:
    """Its entrypoint as a shell runs it, with paths of this machine."""
    (tmp_path / "job.toml").write_text('name = "mine"\n[env]\nid = "refork/Chain-v0"\n[trainer]\nupdates = 2\n')
    entrypoint = loaded("rayjob.yaml")["spec"]["entrypoint"].replace("exec refork", "echo exec refork")
    for path, here in (("/job/", f"{tmp_path}/"), ("/shared/runs", f"{tmp_path}/runs")):
        entrypoint = entrypoint.replace(path, here)
    if there:
        (tmp_path / "runs/mine-20250101-000000/checkpoints/step-00000001").mkdir(parents=True)
        (tmp_path / "runs/mine-20250101-000000/checkpoints/step-00000001/COMMIT").touch()
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    said = subprocess.run(["sh", "-c", entrypoint], env=env, capture_output=True, text=True, check=True).stdout
    expected = f"exec refork train {tmp_path}/job.toml --runs {tmp_path}/runs --cluster.address auto"
    assert said.strip() == expected + " --resume" * there


def test_ray_up_takes_the_cluster_file() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(loaded("cluster.yaml"))
    validate_config(config)
    assert config["max_workers"] == len(config["provider"]["worker_ips"]) == 2


def test_the_sky_task_is_what_its_schema_says() -> None:
    jsonschema.validate(loaded("sky.yaml"), schema("sky_task.json"))


def scripts() -> dict[str, str]:
    sky, ray = loaded("sky.yaml"), loaded("cluster.yaml")
    start = ray["setup_commands"] + ray["head_start_ray_commands"] + ray["worker_start_ray_commands"]
    return {
        "slurm.sbatch": (CLUSTER / "slurm.sbatch").read_text(),
        "rayjob.yaml": loaded("rayjob.yaml")["spec"]["entrypoint"],
        "sky setup": sky["setup"],
        "sky run": sky["run"],
        **{f"cluster.yaml {number}": command for number, command in enumerate(start)},
    }


@pytest.mark.parametrize("name", scripts())
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(scripts()[name])
    checked = subprocess.run(
        [str(BIN / "shellcheck"), "--shell=bash", "--severity=warning", str(script)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_hadolint_finds_nothing() -> None:
    checked = subprocess.run([str(BIN / "hadolint"), str(CLUSTER / "Dockerfile")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_image_copies_every_room_and_runs_without_root() -> None:
    lines = [shlex.split(line) for line in commands("Dockerfile").splitlines() if line.startswith(("COPY", "USER"))]
    copied = {words[1] for words in lines if words[0] == "COPY"}
    rooms = {path.parent.name for path in CLUSTER.parent.glob("*/__init__.py")} - {"tests"}
    assert rooms <= copied
    assert "." not in copied
    assert ["USER", "1000"] in lines
