"""One release of a package, unpacked and ready to be run: the clean workspace that tasks are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import SandboxSpec
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.source_edit import decode
from refork.envs.swe.testrun import PRELOAD, path_variable
from refork.envs.swe.workspace import files_below, matching, unpack


@dataclass(frozen=True)
class Layout:
    """Where in a workspace things are. Globs and folders are relative to it."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    python_path: tuple[str, ...]
    drop: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """A clean workspace on disk."""

    name: str
    version: str
    folder: Path
    base_id: str
    layout: Layout
    source_files: tuple[str, ...]
    """Modules that may be broken and repaired: the matches of the layout's globs outside the tests."""
    test_files: tuple[str, ...]
    """Everything below the test folders."""

    def spec(self, python_env: Path) -> SandboxSpec:
        environment = {"PYTHONPATH": path_variable(self.layout.python_path)}
        return SandboxSpec(self.folder, self.base_id, python_env=python_env, environment=environment, preload=PRELOAD)

    @property
    def python_files(self) -> list[Path]:
        return [self.folder / path for path in (*self.source_files, *self.test_files) if path.endswith(".py")]

    def text(self, path: str) -> str:
        return decode((self.folder / path).read_bytes())

    def texts(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        return {path: (self.folder / path).read_bytes() for path in paths}


def unpack_package(name: str, version: str, archive: Path, folder: Path, layout: Layout) -> Package:
    """Raises InfraFailure when the archive lacks what the layout names."""
    unpack(archive, folder, layout.drop)
    tests = tuple(files_below(folder, layout.tests))
    sources = tuple(path for path in matching(folder, layout.sources) if path not in tests)
    if not tests or not sources:
        missing = "tests" if not tests else "sources"
        raise InfraFailure(f"{archive.name} holds no {missing} at {', '.join(getattr(layout, missing))}")
    return Package(name, version, folder, digest_tree(folder), layout, sources, tests)
