"""Recipes: which released packages become tasks, and how. Names, digests and seeds, never code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from refork.envs.forkable import BadInput, first_fault
from refork.envs.swe.download import Pin
from refork.envs.swe.mutation_operators import OPERATORS

RECIPES = Path(__file__).parent / "recipes"
ENVIRONMENT = "environment.toml"
Split = Literal["train", "validation", "held_out"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


M = TypeVar("M", bound=_Model)


class MutationRecipe(_Model):
    """How many mutation tasks to make of a package."""

    seed: int = 0
    """Order in which mutations are tried."""
    one: int = Field(16, ge=0)
    """Tasks with one bug."""
    two: int = Field(8, ge=0)
    """Tasks with two bugs."""
    three: int = Field(6, ge=0)
    """Tasks with three bugs."""
    operators: tuple[str, ...] = tuple(OPERATORS)
    """Names of mutation operators."""


class PairRecipe(_Model):
    """A release pair: the code of one version with the tests of the next."""

    before: str
    """Version whose code the agent gets."""
    before_sha256: str
    """Digest of its source distribution."""
    after: str
    """Version whose tests judge."""
    after_sha256: str
    """Digest of its source distribution."""
    sources: tuple[str, ...] = ()
    """As in the package's recipe; empty: the same."""
    tests: tuple[str, ...] = ()
    """As in the package's recipe; empty: the same."""
    python_path: tuple[str, ...] | None = None
    """As in the package's recipe; left out: the same."""


class Recipe(_Model):
    """One package."""

    package: str
    """Name on the index; splits are by it."""
    version: str
    """Version that is mutated."""
    sha256: str
    """Digest of its source distribution."""
    split: Split
    """Which side of the split its tasks are on."""
    sources: tuple[str, ...]
    """Globs, from the workspace, of the modules that may be broken and repaired."""
    tests: tuple[str, ...]
    """Folders or files, from the workspace, that hold the tests and all their support files."""
    python_path: tuple[str, ...] = ()
    """Folders, from the workspace, put on sys.path."""
    drop: tuple[str, ...] = ("doc", "docs", ".github", "*.egg-info", "benchmark", "benchmarks")
    """Globs, from the workspace, of what is not unpacked."""
    mutation: MutationRecipe | None = None
    """Mutation tasks; left out: none."""
    pair: tuple[PairRecipe, ...] = ()
    """Release pairs."""

    @property
    def pin(self) -> Pin:
        return Pin(self.package, self.version, self.sha256)


class EnvironmentRecipe(_Model):
    """The one folder of installed packages that all local tasks share."""

    requirements: tuple[str, ...]
    """Exact pins, `name==version`; installed without their dependencies, so all are named."""


def read_recipes(folder: Path = RECIPES, packages: tuple[str, ...] = ()) -> list[Recipe]:
    """The recipes in `folder`, by name. Raises BadInput: no such package, or a recipe that says what it cannot."""
    found = {path.stem: path for path in sorted(folder.glob("*.toml")) if path.name != ENVIRONMENT}
    if unknown := [name for name in packages if name not in found]:
        raise BadInput(f"no recipe for package {unknown[0]!r}; there are: {', '.join(found)}")
    return [_read(path, Recipe) for name, path in found.items() if not packages or name in packages]


def read_environment(folder: Path = RECIPES) -> EnvironmentRecipe:
    return _read(folder / ENVIRONMENT, EnvironmentRecipe)


def _read(path: Path, model: type[M]) -> M:
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}") from error
    except ValidationError as error:
        raise BadInput(f"{path}: {first_fault(error)}") from error
