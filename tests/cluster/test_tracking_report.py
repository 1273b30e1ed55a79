"""What W&B gets of a run beside its rows: the fork tree, checkpoints as models, where the run comes from."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pytest
from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.retention import Retention
from refork.cluster.tasks import ChainSource
from refork.cluster.tracking import Jsonl, Tracking
from refork.cluster.tracking_checkpoints import TrackedCheckpoints, aliases
from refork.cluster.tracking_origin import about, git_state, origin
from refork.cluster.tracking_report import differentials, report_forks
from refork.cluster.wandb_sink import Table
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import EnvConfig, JobConfig

from tests.trainers.made import branch, group, main


class Kept:
    """A record that remembers what it was given."""

    def __init__(self) -> None:
        self.models: list[tuple[str, Sequence[str], Mapping[str, Any]]] = []
        self.reports: list[tuple[str, bytes, Table]] = []

    def model(self, folder: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> None:
        self.models.append((folder.name, aliases, metadata))

    def report(self, name: str, picture: Path, table: Table) -> None:
        self.reports.append((name, picture.read_bytes()[:8], table))


class Tasks:
    """What a report needs of a family that plays tasks."""

    source: ClassVar = ChainSource(EnvConfig(id="refork/Chain-v0"))


def _forked(*steps: int) -> TaskExperience:
    """Of a rollout that returned 1, gone back to at these steps; the alternative at step t returned t / 10."""
    branches = [branch(1 + i, 0, step, step / 10) for i, step in enumerate(steps)]
    return replace(group([main(0, 1.0, (0.5, 0.4, 0.3))], branches), task="chain-3", episode=len(steps))


def test_the_group_gone_back_in_most_is_drawn_with_what_each_decision_was_worth(tmp_path: Path) -> None:
    store, kept = TrajectoryStore(tmp_path / "trajectories"), Kept()
    store.write(0, [_forked(1), _forked(0, 2)])
    store.write(1, [_forked()])
    report_forks(Tasks(), store, Tracking({}, "id", kept), tmp_path)
    ((name, head, table),) = kept.reports
    assert (name, head) == ("fork_tree", b"\x89PNG\r\n\x1a\n")
    assert table.columns == ("rollout", "step", "action", "probability", "alternatives", "differential")
    assert table.rows == [("t/0/0", 0, 0, 0.5, 1, 1.0), ("t/0/0", 2, 0, 0.3, 1, 0.8)]


def test_a_fork_that_was_not_judged_has_no_differential() -> None:
    unjudged = group([main(0, 1.0)], [branch(1, 0, 1, "infra")])
    assert [row[-1] for row in differentials(unjudged).rows] == [None]


def test_nothing_is_drawn_without_forks_or_without_a_record(tmp_path: Path) -> None:
    store, kept = TrajectoryStore(tmp_path / "trajectories"), Kept()
    store.write(0, [_forked()])
    report_forks(Tasks(), store, Tracking({}, "id", kept), tmp_path)
    store.write(1, [_forked(1)])
    report_forks(Tasks(), store, Tracking({}), tmp_path)
    assert kept.reports == []
    assert not (tmp_path / "fork_tree.png").exists()


def test_a_tree_that_cannot_be_drawn_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = TrajectoryStore(tmp_path / "trajectories")
    store.write(0, [_forked(1)])
    store.path(0).write_bytes(b"no gzip")
    report_forks(Tasks(), store, Tracking({}, "id", Kept()), tmp_path)
    assert "wandb: fork trees are not recorded: " in caplog.text


@pytest.mark.parametrize(
    ("which", "kept"),
    [
        ("none", []),
        ("last", [("step-00000002", ["latest"])]),
        ("all", [("step-00000001", ["latest", "best"]), ("step-00000002", ["latest"])]),
    ],
)
def test_checkpoints_are_kept_as_asked_with_the_row_of_their_step(tmp_path: Path, which: Any, kept: list[Any]) -> None:
    record = Kept()
    tracking = Tracking({"metrics.jsonl": Jsonl(tmp_path / "metrics.jsonl")}, "id", record)
    store = CheckpointStore(tmp_path / "checkpoints", Retention(1))
    checkpoints = TrackedCheckpoints(store, tracking, which, tmp_path / "metrics.jsonl")
    for step, resolved in ((1, 0.5), (2, 0.25)):
        tracking.log(step, {"validation/resolved": resolved})
        checkpoints.save(step, {"update": step})
    checkpoints.finish(2)
    tracking.close()
    assert [(name, names) for name, names, _ in record.models] == kept
    if kept:
        assert record.models[-1][2] == {"step": 2, "validation/resolved": 0.25}
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000002"]


def test_the_first_of_equally_good_checkpoints_is_the_best() -> None:
    rows: list[dict[str, Any]] = [{"step": 1, "validation/fqe": 2.0}, {"step": 2}, {"step": 3, "validation/fqe": 2.0}]
    assert aliases(rows, 1) == ["latest", "best"]
    assert aliases(rows, 3) == ["latest"]
    assert aliases([{"step": 1}], 1) == ["latest"]


def _git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    subprocess.run(["git", "-C", str(folder), *own, *arguments], check=True, capture_output=True)


def test_git_state_is_commit_branch_and_whether_there_are_changes(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    _git(tmp_path, "init", "-b", "trial")
    assert git_state(tmp_path) is None  # no commit yet
    (tmp_path / "a").write_text("1")
    _git(tmp_path, "add", "a")
    _git(tmp_path, "commit", "-m", "first")
    state = git_state(tmp_path)
    assert state is not None
    assert (len(state["commit"]), state["branch"], state["dirty"]) == (40, "trial", False)
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {**state, "dirty": True}


def test_a_machine_without_git_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_wandb_is_told_the_job_its_origin_group_and_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = JobConfig.model_validate({"name": "try", "seed": 7, "trainer": {"kind": "crr"}})
    told = about(job, tmp_path)
    assert (told.project, told.group, told.tags) == ("refork", "try", ("seed-7", "crr"))
    packages = {name: version(name) for name in ("refork", "torch", "ray")}
    assert told.config == {**job.model_dump(mode="json"), "git": None, "versions": packages}
    (tmp_path / "versions.json").write_text('{"git": null, "versions": {"torch": "1"}}')
    assert origin(tmp_path) == {"git": None, "versions": {"torch": "1"}}  # as when the run began
    grouped = job.model_copy(update={"tracking": job.tracking.model_copy(update={"group": "study"})})
    assert about(grouped, tmp_path).group == "study"
