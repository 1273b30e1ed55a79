"""Both algorithms learn on the chain, measured exactly; the comparison script runs as a person would run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _chain(*arguments: str) -> dict:
    command = [sys.executable, str(ROOT / "scripts" / "bench" / "chain.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_both_learn_and_crr_is_ahead_at_equal_steps() -> None:
    found = _chain("--methods", "crr", "grpo", "--marks", "1", "30000", "--seeds", "1", "--processes", "1")
    crr, grpo = found["methods"]["crr"], found["methods"]["grpo"]
    assert found["marks"] == [1, 30000]
    assert grpo[0]["estimate"] == pytest.approx(0.09, abs=0.05)
    assert grpo[1]["estimate"] > 0.2
    assert crr[1]["estimate"] > 0.3
    assert crr[1]["estimate"] > grpo[1]["estimate"]
    assert crr[1]["low"] <= crr[1]["estimate"] <= crr[1]["high"]


def test_an_unknown_method_is_bad_input() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "bench" / "chain.py"), "--methods", "ppo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "invalid choice: 'ppo'" in done.stderr
