"""Layers between real nodes: each has a home of its own, so what one has made no other has until it is sent."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refork.cluster.layer_storage import StorageDepot
from refork.cluster.storage import open_storage
from refork.envs.forkable import InfraFailure
from refork.scripts.bench.hosts import Hosts

HERE = Path(__file__).parent


def test_a_storage_keeps_archives_by_content(tmp_path: Path) -> None:
    one, two = (StorageDepot(open_storage(f"file://{tmp_path}/layers")) for _ in range(2))
    assert not one.has("a" * 32)
    one.put("a" * 32, [b"one ", b"layer"])
    assert two.has("a" * 32)
    assert b"".join(two.get("a" * 32)) == b"one layer"
    two.put("a" * 32, [b"one layer"])
    assert b"".join(one.get("a" * 32)) == b"one layer"
    with pytest.raises(InfraFailure, match=f"layer {'b' * 32} is not in file://"):
        list(one.get("b" * 32))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """What `layers_on_nodes.py` saw, by name; node `one` died where it waited."""
    place = tmp_path_factory.mktemp("layers")
    (place / "base" / "d").mkdir(parents=True)
    for name in ("a.py", "README", "d/old"):
        (place / "base" / name).write_text(f"{name}\n")
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder, Hosts(Path(folder) / "ray") as hosts:
        _, one = (
            hosts.add("--num-cpus", "1", "--resources", json.dumps({n: 1}), environment={"REFORK_HOME": str(place / n)})
            for n in ("two", "one")
        )
        script = [sys.executable, str(HERE / "layers_on_nodes.py"), hosts.address]
        driver = subprocess.Popen(
            hosts.inside([*script, str(place / "base"), f"file://{place}/kept"]),
            env=os.environ | hosts.environment,
            cwd=HERE.parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert driver.stdin is not None
        assert driver.stdout is not None
        found = {}
        for line in driver.stdout:
            said = json.loads(line)
            found[said.pop("what") + str(said.pop("size", ""))] = said
            if "waits" in line:
                hosts.kill(one)
                driver.stdin.write("\n")
                driver.stdin.flush()
        assert driver.wait() == 0
        yield found


needs_nodes = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")


@pytest.mark.ray
@needs_nodes
def test_any_node_forks_the_state_of_another(seen: dict[str, dict[str, Any]]) -> None:
    forked = seen["forked"]
    assert forked["found"] == forked["made"]
    assert forked["layers"] == [f"c-{layer}" for layer in forked["ids"]]
    assert seen["lists"]["one"] == seen["lists"]["two"]
    assert "./l l 777 nowhere\n" in seen["lists"]["two"]


@pytest.mark.ray
@needs_nodes
def test_what_is_played_on_goes_back_without_what_is_there(seen: dict[str, dict[str, Any]]) -> None:
    back = seen["back"]
    assert back["found"] == back["made"]
    assert len(back["layers"]) == 1


@pytest.mark.ray
@needs_nodes
def test_what_is_put_into_the_cluster_outlives_the_store_it_was_made_in(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["left"]["found"] == seen["left"]["made"]


@pytest.mark.ray
@needs_nodes
def test_an_edit_is_there_in_less_than_a_second(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["speed1024"]["ms"] < 1000
    assert seen[f"speed{64 << 20}"]["ms"] < 20_000


@pytest.mark.ray
@needs_nodes
def test_after_its_node_has_died_a_state_comes_from_the_storage_or_by_its_commands(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert seen["stored"]["found"] == seen["stored"]["made"]
    assert re.search(
        r"^layer \w{32} is gone: neither in .*/two/layers nor to be had from the nodes of the cluster or file://.*/kept$",
        seen["lost"]["said"],
    )
    assert seen["again"]["found"] == seen["again"]["made"] != seen["again"]["base"]
