"""RLlib by job file, as a person runs it: PPO on patients stopped and gone on with, APPO on the chain, a log cloned."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import committed
from refork.cluster.reaper import holders

from tests.scripts.commands import refork, rows, run_folder, start, wait_for_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SMALL = (
    "--trainer.options.training.train_batch_size_per_learner",
    "100",
    "--trainer.options.training.minibatch_size",
    "50",
    "--trainer.options.training.num_epochs",
    "1",
)


def test_ppo_is_stopped_judged_and_gone_on_with(tmp_path: Path) -> None:
    """SIGTERM commits the last whole iteration, leaves no process, and the run goes on from there."""
    process = start(tmp_path, "train", "sepsis_ppo", *SMALL, "--trainer.updates", "5000", "--checkpoint.every", "1")
    run = wait_for_checkpoint(tmp_path, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "to go on: refork train" in said
    assert not holders(run)
    done = read(committed(run / "checkpoints")[-1])
    assert done.step == done.state["update"] == len(rows(run)) > 0
    assert done.state["policy"].keys() == {"logits.table.rows"}
    last = done.step + 2
    found = refork(tmp_path, "train", str(run), "--resume", "--trainer.updates", str(last), "--evaluate.every", "1")
    assert found.returncode == 0, found.stderr
    assert [row["step"] for row in rows(run)] == list(range(1, last + 1))
    assert rows(run)[-1]["learners/default_policy/weights_seq_no"] == last
    assert rows(run)[-1]["total/steps"] == sum(row["steps"] for row in rows(run)) >= 100 * last
    judged = refork(tmp_path, "evaluate", str(run), "--no-baselines")
    assert judged.returncode == 0, judged.stderr
    result = json.loads((run / "evaluation-held_out.json").read_text())
    (truth,) = [row["truth"]["value"] for row in result["results"] if row["name"] == "trained"]
    assert truth == pytest.approx(rows(run)[-1]["validation/true_value"], abs=1e-12)


def test_appo_plays_the_chain_on_an_env_runner(tmp_path: Path) -> None:
    job = tmp_path / "appo.toml"
    job.write_text(
        'env = { id = "refork/Chain-v0", options = { length = 4 } }\nrollout = { actors = 1 }\n'
        'tracking = { wandb = "off" }\n[trainer]\nkind = "rllib"\nalgorithm = "APPO"\nupdates = 2\n'
        "options.training = { train_batch_size_per_learner = 100 }\n"
        "options.reporting = { min_time_s_per_iteration = 0, min_sample_timesteps_per_iteration = 200 }\n"
    )
    found = refork(tmp_path, "train", str(job))
    assert found.returncode == 0, found.stderr
    first, second = rows(run_folder(tmp_path))
    assert first["steps"] >= 200
    assert second["env_runners/episode_len_mean"] == 4
    assert second["total/steps"] == first["steps"] + second["steps"]
    refused = refork(tmp_path, "evaluate", str(run_folder(tmp_path)))
    assert refused.returncode == 2
    assert "is judged on games (cross_graph) and where observations are numbered states" in refused.stderr


def test_a_log_is_cloned(tmp_path: Path) -> None:
    job = tmp_path / "bc.toml"
    job.write_text(
        '[env]\nid = "refork/SepsisSCM-v0"\noptions = { episodes = 200 }\n[tracking]\nwandb = "off"\n'
        '[trainer]\nkind = "rllib"\nalgorithm = "BC"\nupdates = 2\n'
        "options.training = { train_batch_size_per_learner = 200, lr = 0.003 }\n"
        "options.offline_data = { dataset_num_iters_per_learner = 30 }\n[evaluate]\nevery = 1\n"
    )
    found = refork(tmp_path, "train", str(job))
    assert found.returncode == 0, found.stderr
    first, second = rows(run_folder(tmp_path))
    losses = [row["learners/default_policy/policy_loss"] for row in (first, second)]
    assert max(losses) < 1.5  # of one batch; that of the uniform policy is log 8 = 2.08
    assert second["validation/true_value"] > -0.65  # uniform play comes to -0.68
    assert (run_folder(tmp_path) / "trajectories" / "log.parquet").exists()
