"""Random instances by name: `charging-irregular-n20-17` is always the same game."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.graph_game import domains
from refork.envs.graph_game.coupling import biregular, rewire
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.networks import road_network

HORIZON = 20
LEVELS = 3
DEGREE = 3
"""Supply nodes per site, on average."""
COUPLINGS = {"regular": 0.0, "irregular": 1.0}
"""Share of the pairs that are rewired."""


class InstanceName(NamedTuple):
    """What the name of an instance says."""

    domain: str
    coupling: str
    size: int
    number: int

    @property
    def cell(self) -> str:
        """What instances are grouped by: `charging/irregular/20`."""
        return f"{self.domain}/{self.coupling}/{self.size}"

    def __str__(self) -> str:
        return f"{self.domain}-{self.coupling}-n{self.size}-{self.number}"


def domain_names() -> tuple[str, ...]:
    """Modules of `domains/` that build one."""
    names = (m.name for m in pkgutil.iter_modules(domains.__path__))
    return tuple(sorted(n for n in names if n != "common" and (Path(domains.__path__[0]) / f"{n}.py").exists()))


def parse_name(name: str) -> InstanceName:
    """Raises BadInput for what is no name of a generated instance."""
    parts = name.split("-")
    if len(parts) != 4 or not parts[2].startswith("n") or not parts[2][1:].isdecimal() or not parts[3].isdecimal():
        raise BadInput(
            f"{name!r} names no graph game: expected DOMAIN-COUPLING-nSIZE-NUMBER, e.g. charging-regular-n20-0"
        )
    if parts[0] not in domain_names():
        raise BadInput(f"{name!r}: no domain {parts[0]!r}; there are: {', '.join(domain_names())}")
    if parts[1] not in COUPLINGS:
        raise BadInput(f"{name!r}: no coupling {parts[1]!r}; there are: {', '.join(COUPLINGS)}")
    size = int(parts[2][1:])
    if size < DEGREE:
        raise BadInput(f"{name!r}: at least {DEGREE} sites are needed, got {size}")
    return InstanceName(parts[0], parts[1], size, int(parts[3]))


def make_instance(name: str, *, horizon: int = HORIZON, rewired: float | None = None) -> Instance:
    """The instance of that name: as many supply nodes as sites, `DEGREE` pairs per site on average.

    `rewired` in [0, 1] replaces the share of rewired pairs that the coupling's name stands for. Raises BadInput.
    """
    asked = parse_name(name)
    rng = np.random.default_rng([11, asked.number, asked.size, *name.encode()])
    n = asked.size
    roads, place = road_network(n, rng)
    share = COUPLINGS[asked.coupling] if rewired is None else rewired
    pairs = rewire(biregular(n, n, DEGREE, rng), n, n, share, rng)
    fields: dict[str, Any] = importlib.import_module(f"{domains.__name__}.{asked.domain}").build(rng, n, n, horizon)
    reach = fields["site_capacity"][roads].sum(1) * LEVELS  # what both ends together could serve at most
    return Instance(
        name=name,
        domain=asked.domain,
        levels=LEVELS,
        roads=roads,
        road_limit=rng.uniform(0.45, 0.9, len(roads)) * reach,
        pairs=pairs,
        site_place=place,
        **fields,
    )
