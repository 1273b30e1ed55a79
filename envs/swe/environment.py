"""The one folder of installed packages that all local tasks share, byte-compiled ahead: sandboxes never write any."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.bytecode import FOLDER
from refork.envs.swe.recipe import EnvironmentRecipe

STORE = FOLDER.partition("/")[0]
STAMP = ".refork-environment.json"
INSTALL_S = 900.0


def environment_stamp(recipe: EnvironmentRecipe) -> str:
    """What an installed environment depends on, as a digest."""
    rows = [sorted(recipe.requirements), sys.implementation.cache_tag, sys.platform]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def install_environment(recipe: EnvironmentRecipe, folder: Path) -> None:
    """Have the pinned packages in `folder`, made in a temporary folder and renamed. Raises InfraFailure."""
    stamp = environment_stamp(recipe)
    if _read_stamp(folder) == stamp:
        return
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    _run("install", "--quiet", "--no-deps", "--no-compile", "--target", str(part), *recipe.requirements)
    for scripts in ("bin", "__pycache__"):
        shutil.rmtree(part / scripts, ignore_errors=True)
    # unchecked: the byte-code stays valid when a copy of the folder has other times
    compile_all = ["-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", str(part)]
    subprocess.run([sys.executable, *compile_all], check=True, capture_output=True)
    (part / STAMP).write_text(json.dumps({"stamp": stamp, "requirements": recipe.requirements}))
    if (folder / STORE).exists():
        (folder / STORE).rename(part / STORE)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _read_stamp(folder: Path) -> str | None:
    try:
        stamp: str = json.loads((folder / STAMP).read_text())["stamp"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return stamp


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise InfraFailure(f"pip could not install the tasks' packages: {(lines or ['no message'])[-1]}")
