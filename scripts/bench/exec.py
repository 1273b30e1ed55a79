"""Round trips of one command: `true`, a Python start, and a test run from a cold and a warm interpreter.

For docker, `docker_exec` is what a plain `docker exec` of the same `true` takes. The last line is one JSON object;
milliseconds throughout.

    python scripts/bench/exec.py [--short] [--backends overlay docker]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from refork.envs.swe.sandbox.base import Backend, SandboxSpec
from refork.scripts.bench import docker_plain
from refork.scripts.bench.sandboxes import backends, make_base, make_spec, scratch, summary, timed

TESTS = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]


def pytest_env(folder: Path) -> Path:
    """A folder with pytest and what it needs, as the task builder makes one."""
    env = folder / "env"
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (env / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(distribution.locate_file(file)), env / file)
    return env


def rows(backend: Backend, spec: SandboxSpec, repeats: int) -> dict[str, Any]:
    found = {}
    with backend.open(spec) as sandbox:
        for name, argv, warm, times in (
            ("true", ["true"], False, repeats),
            ("python", ["python", "-c", "pass"], False, repeats // 4),
            ("pytest_cold", TESTS, False, max(2, repeats // 20)),
            ("pytest_warm", TESTS, True, max(2, repeats // 4)),
        ):
            first = sandbox.run(argv, warm=warm)
            if first.exit_code != 0:
                raise RuntimeError(f"{argv} ended with {first.exit_code}: {first.output}")
            found[name] = summary([timed(partial(sandbox.run, argv, warm=warm)) for _ in range(times)])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one command per backend.")
    parser.add_argument("--short", action="store_true", help="fewer repeats")
    parser.add_argument("--backends", nargs="+", default=["overlay", "docker"], choices=["overlay", "docker"])
    given = parser.parse_args()
    repeats = 40 if given.short else 300
    result: dict[str, Any] = {"overlay_p50_ms": None, "docker_supervisor_p50_ms": None, "docker_exec_p50_ms": None}
    with scratch() as folder:
        spec = make_spec(make_base(folder, 50), pytest_env(folder), ("pytest",))
        for name, backend in backends(folder, given.backends):
            found = rows(backend, spec, repeats)
            key = "docker_supervisor_p50_ms" if name == "docker" else f"{name}_p50_ms"
            result |= {key: found["true"]["p50_ms"], name: found}
            print(json.dumps({name: found}, indent=2), flush=True)
        if "docker" in result:
            result["docker_exec_p50_ms"] = summary(docker_plain.exec_true(max(5, repeats // 10)))["p50_ms"]
            result["ratio"] = round(result["docker_exec_p50_ms"] / result["docker_supervisor_p50_ms"], 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
