"""What the sandbox benches share: a workspace of a given size, the backends that work here, and percentiles."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from refork.envs.swe.sandbox.base import Backend, SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.manifest import digest_tree


def make_base(folder: Path, files: int) -> Path:
    """A workspace of `files` small Python files, fifty to a folder, and two tests."""
    base = folder / f"base{files}"
    for number in range(files):
        path = base / f"pkg{number // 50}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"VALUE = {number}\n" * 20)
    (base / "test_it.py").write_text(
        "def test_it():\n    assert 1 + 1 == 2\n\n\ndef test_other():\n    assert [] == []\n"
    )
    return base


def make_spec(base: Path, python_env: Path | None = None, preload: tuple[str, ...] = ()) -> SandboxSpec:
    return SandboxSpec(base, digest_tree(base), python_env=python_env, preload=preload)


def _overlay(folder: Path) -> Backend:
    from refork.envs.swe.sandbox.overlay import OverlayBackend

    return OverlayBackend(folder / "layers")


def _docker(folder: Path) -> Backend:
    from refork.envs.swe.sandbox.docker import DockerBackend

    return DockerBackend(folder / "docker")


_MAKERS: dict[str, Callable[[Path], Backend]] = {"overlay": _overlay, "docker": _docker}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a bench, on the disk where sandboxes are kept by default."""
    with TemporaryDirectory(prefix="refork-bench-", dir="/var/tmp") as name:
        yield Path(name)


def backends(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, Backend]]:
    """Those of `names` that work here, each closed after its turn; says why another does not."""
    for name in names:
        try:
            backend = _MAKERS[name](folder)
        except UnsupportedHost as error:
            print(f"{name}: left out: {error}", file=sys.stderr)
            continue
        try:
            yield name, backend
        finally:
            backend.close()


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that an action took."""
    started = time.perf_counter()
    action()
    return (time.perf_counter() - started) * 1e3


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


def summary(values: Sequence[float]) -> dict[str, float]:
    return {"p50_ms": round(percentile(values, 0.5), 3), "p99_ms": round(percentile(values, 0.99), 3)}
