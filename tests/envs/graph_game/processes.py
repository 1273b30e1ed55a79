"""What a script prints in processes that hash texts differently."""

import os
import subprocess
import sys


def outputs_by_hash_seed(script: str) -> set[str]:
    outputs = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", script]
        outputs.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip())
    return outputs
