"""The Slurm script for real, on one node: Slurm's own two commands are stood in for, Ray and refork are not.

In namespaces of its own, since `ray symmetric-run` ends with `ray stop`, which ends every Ray that it sees.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts.commands import environment, rows, run_folder

pytestmark = [pytest.mark.ray, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]

SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm.sbatch"
ALONE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c")
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "node",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_CPUS_PER_TASK": "2",
}


def stand_in(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def sbatch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    bin = folder / "bin"
    bin.mkdir(exist_ok=True)
    stand_in(bin, "scontrol", "echo 127.0.0.1")
    stand_in(
        bin, "srun", 'while [ "${1#--}" != "$1" ]; do shift; done; stat -c %a "$RAY_AUTH_TOKEN_PATH" >&2; exec "$@"'
    )
    path = f"{bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    Path("/tmp/ray").mkdir(exist_ok=True)
    start = 'ip link set lo up && mount -t tmpfs ray /tmp/ray && exec bash "$0" "$@"'
    return subprocess.run(
        [*ALONE, start, str(SCRIPT), *arguments],
        cwd=folder,
        env=environment(folder, **SLURM, PATH=path),
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_job_runs_and_a_requeued_one_goes_on(tmp_path: Path) -> None:
    job = ("chain_small", str(tmp_path / "runs"), "--rollout.actors", "1", "--trainer.updates")
    done = sbatch(tmp_path, *job, "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n600\n" in f"\n{done.stderr}"
    assert not list(tmp_path.glob(".refork-ray-*"))
    assert sbatch(tmp_path, *job, "5").returncode == 0
    assert [row["step"] for row in rows(run_folder(tmp_path))] == [1, 2, 3, 4, 5]


def test_a_bad_key_starts_nothing(tmp_path: Path) -> None:
    done = sbatch(tmp_path, "chain_small", str(tmp_path / "runs"), "--trainer.updats", "3")
    assert done.returncode != 0
    assert "did you mean trainer.updates?" in done.stderr
    assert "symmetric" not in done.stdout + done.stderr
