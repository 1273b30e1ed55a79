"""What a run shows: plain lines where there is no terminal, one line that moves where there is."""

import io
import re
from collections.abc import Mapping, Sequence

import pytest
from refork.cluster.task_family import TaskFamily
from refork.replay.trajectory import TaskExperience
from refork.scripts.progress import Progress
from refork.trainers.config import JobConfig
from rich.console import Console

ROW = {"trajectories": 12.0, "steps": 100.0, "steps_executed": 25.0, "branches": 3.0, "resolved": 0.5}


def _headline(rows: Sequence[Mapping[str, float]]) -> list[str]:
    return TaskFamily(JobConfig.model_validate({"env": {"id": "refork/Chain-v0"}, "trainer": {}})).headline(rows)


def _shown(rows: list[dict[str, float]], *, terminal: bool, interval_s: float = 0.0) -> str:
    out = io.StringIO()
    progress = Progress(
        4, _headline, console=Console(file=out, force_terminal=terminal, width=200), interval_s=interval_s
    )
    for step, row in enumerate(rows, 1):
        progress.group(TaskExperience("t", 0, ()))
        progress.log(step, row)
    progress.close()
    return out.getvalue()


def test_a_plain_line_has_rate_resolved_share_forks_cache_hits_and_time_left() -> None:
    lines = _shown([ROW, ROW | {"resolved": 1.0, "infra_errors": 2.0}], terminal=False).splitlines()
    pattern = r"update 2/4  [\d.]+ episodes/s  resolved 0\.75  forks 6  cache hits 0\.75  infra errors 2  0:\d\d left"
    assert len(lines) == 2
    assert re.fullmatch(pattern, lines[1])


def test_plain_lines_come_now_and_then_but_the_first_and_the_last_always() -> None:
    lines = _shown([ROW] * 4, terminal=False, interval_s=1000.0).splitlines()
    assert [line.split()[1] for line in lines] == ["1/4", "4/4"]


def test_an_update_without_a_judged_rollout_shows_no_share() -> None:
    (line,) = _shown([{"trajectories": 1.0}], terminal=False).splitlines()
    assert "resolved" not in line
    assert "cache hits" not in line


@pytest.mark.parametrize("rows", [[], [ROW]])
def test_on_a_terminal_the_line_moves(rows: list[dict[str, float]]) -> None:
    shown = _shown(rows, terminal=True)
    assert ("update 1/4" in shown) == bool(rows)
    assert shown.count("\n") <= 1
