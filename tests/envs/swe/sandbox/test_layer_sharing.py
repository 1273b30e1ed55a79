"""Two stores on this host are two hosts: what is made in one is restored in the other, by way of a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.swe.lazy_sandbox import LazySandbox, Step
from refork.envs.swe.sandbox import owned
from refork.envs.swe.sandbox.base import Limits, SandboxSpec
from refork.envs.swe.sandbox.layer_depot import FolderDepot
from refork.envs.swe.sandbox.layer_sharing import publish, receive
from refork.envs.swe.sandbox.layer_unpack import LayerRefused
from refork.envs.swe.sandbox.overlay import OverlayBackend

from tests.envs.swe.sandbox.test_overlay import left
from tests.envs.swe.sandbox.test_state import sh

ROOT = Path(__file__).parents[4]
CHANGE = (
    "echo 2 > pkg/a.py; rm README; rm -r pkg/inner; mkdir pkg/inner; echo new > pkg/inner/new; ln -s nowhere l; "
    "chmod 600 run.sh; mkdir -p deep/er; chmod 700 deep; mkfifo p; rm -r empty; echo file > empty; echo t > /tmp/t"
)


class Counting(FolderDepot):
    """What was moved: (direction, layer, bytes)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.moved: list[tuple[str, str, int]] = []

    def get(self, layer: str) -> Iterator[bytes]:
        chunks = list(super().get(layer))
        self.moved.append(("get", layer, sum(map(len, chunks))))
        return iter(chunks)

    def put(self, layer: str, chunks: Iterable[bytes]) -> None:
        held = list(chunks)
        self.moved.append(("put", layer, sum(map(len, held))))
        super().put(layer, held)


@pytest.fixture
def small(base: Path, spec: SandboxSpec) -> SandboxSpec:
    return SandboxSpec(base, spec.base_id, preload=())


@pytest.fixture
def depot(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "depot")


@pytest.fixture
def a(tmp_path: Path) -> Iterator[OverlayBackend]:
    made = OverlayBackend(tmp_path / "a" / "layers")
    yield made
    made.close()


@pytest.fixture
def b(tmp_path: Path, depot: Counting) -> Iterator[OverlayBackend]:
    made = OverlayBackend(tmp_path / "b" / "layers", depots=[depot])
    yield made
    made.close()


def test_a_state_of_one_host_is_the_same_on_another(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, CHANGE)
    ref = here.snapshot()
    assert publish(a.store, ref, depot) == 1
    there = b.open(small, ref)
    assert there.state_id == ref.state_id == here.state_id
    assert dict(there.changes) == dict(here.changes)
    listing = "find . /tmp -printf '%p %y %m %l\\n' | sort; cat pkg/a.py pkg/inner/new empty /tmp/t; ls pkg/inner"
    assert sh(there, listing) == sh(here, listing)


def test_deep_chains_move_only_what_is_missing(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    refs = []
    for number in range(20):
        here.put({f"/testbed/f{number}": b"x" * 1000})
        refs.append(here.snapshot())
    assert publish(a.store, refs[9], depot) == 10
    assert b.open(small, refs[9]).state_id == refs[9].state_id
    assert publish(a.store, refs[19], depot) == 10
    depot.moved.clear()
    last = b.open(small, refs[19])
    assert last.state_id == refs[19].state_id
    assert sh(last, "ls | grep -c '^f'") == "20\n"
    assert {layer for _, layer, _ in depot.moved} == set(refs[19].payload["ids"][:10])
    assert [size for _, _, size in depot.moved] == [5120] * 10  # two entries of 1024 + 512, 1024 of content, the end
    depot.moved.clear()
    b.open(small, refs[15])
    assert publish(a.store, refs[19], depot) == 0
    assert depot.moved == []


def test_a_state_goes_on_from_host_to_host(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    a.depots = b.depots
    a.retain(here.snapshot())
    there = b.open(small, here.snapshot())
    sh(there, "echo 2 > two")
    ref = there.snapshot()
    b.retain(ref)
    assert ref.payload["layers"][1] == f"c-{ref.payload['ids'][1]}"
    assert sh(a.open(small, ref), "cat one two") == "1\n2\n"
    assert [way for way, _, _ in depot.moved] == ["put", "get", "put", "get"]  # the first layer never comes back


def test_a_layer_nobody_has_is_said(a: OverlayBackend, b: OverlayBackend, small: SandboxSpec) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    ref = here.snapshot()
    with pytest.raises(
        InfraFailure, match=rf"^layer {ref.payload['ids'][0]} is gone: neither in .* nor to be had from"
    ):
        b.open(small, ref)


def test_an_environment_takes_the_layers_and_does_not_play_the_commands_again(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, "date +%N > when")  # played again, it would lead elsewhere
    ref = here.snapshot()
    path = (Step("date +%N > when", ref.state_id),)
    lazy = LazySandbox(b, small, Limits())
    lazy.know(ref)
    with pytest.raises(StateMismatch, match="replayed command 0"):
        lazy.at(path)
    publish(a.store, ref, depot)
    lazy.know(ref)
    assert lazy.at(path).get("/testbed/when") == here.get("/testbed/when")


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_a_damaged_archive_is_refused_by_name(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting, damage: str, tmp_path: Path
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    first = here.snapshot()
    sh(here, "echo 2 > two")
    ref = here.snapshot()
    publish(a.store, ref, depot)
    file, other = (depot.folder / f"{layer}.tar" for layer in ref.payload["ids"])
    whole = file.read_bytes()
    content = {"cut": whole[:2000], "flipped": whole.replace(b"2\n", b"3\n"), "other": other.read_bytes()}[damage]
    file.write_bytes(content)
    there = b.open(small, first)
    before = left(b.store.root)
    with pytest.raises(LayerRefused, match=f"layer {ref.payload['ids'][0]} is refused"):
        there.restore(ref)
    assert there.state_id == first.state_id
    assert left(b.store.root) == before

    whole_depot = FolderDepot(tmp_path / "second")
    publish(a.store, ref, whole_depot)
    b.depots = (depot, whole_depot)
    there.restore(ref)
    assert there.state_id == ref.state_id


def test_layers_of_another_state_are_not_taken_for_it(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    ref = here.snapshot()
    publish(a.store, ref, depot)
    with pytest.raises(StateMismatch, match=f"not {'0' * 64}"):
        b.open(small, StateRef("0" * 64, ref.payload))


def test_a_reference_without_content_ids_is_one_of_this_host(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    ref = here.snapshot()
    old = StateRef(ref.state_id, {"layers": ref.payload["layers"], "bytes": 4})
    here.restore(old)
    assert here.state_id == ref.state_id
    with pytest.raises(InfraFailure, match="is gone: its owner has ended"):
        b.open(small, old)
    assert publish(a.store, old, depot) == 1
    assert b.open(small, ref).state_id == ref.state_id


def test_what_another_process_of_the_host_has_is_not_moved(
    a: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    ref = here.snapshot()
    publish(a.store, ref, depot)
    depot.moved.clear()
    other = OverlayBackend(a.store.root, depots=[depot])
    elsewhere = StateRef(ref.state_id, {**ref.payload, "layers": ["ffffff.1"]})
    assert other.open(small, elsewhere).layers == tuple(ref.payload["layers"])
    assert depot.moved == []
    other.close()


def test_a_name_that_another_host_uses_too_is_no_matter(
    a: OverlayBackend, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    here, there = a.open(small), b.open(small)
    sh(here, "echo a > file")
    sh(there, "echo b > file")
    made_there = there.snapshot()
    ref = here.snapshot()
    publish(a.store, ref, depot)
    same_name = StateRef(ref.state_id, {**ref.payload, "layers": made_there.payload["layers"]})
    assert sh(b.open(small, same_name), "cat file") == "a\n"


def test_what_came_from_elsewhere_goes_with_its_last_user(
    a: OverlayBackend, small: SandboxSpec, depot: Counting, tmp_path: Path
) -> None:
    here = a.open(small)
    sh(here, "echo 1 > one")
    ref = here.snapshot()
    publish(a.store, ref, depot)
    store = tmp_path / "b" / "layers"
    one, two = (OverlayBackend(store, depots=[depot]) for _ in range(2))
    one.open(small, ref)
    two.open(small, ref)
    assert [way for way, _, _ in depot.moved] == ["put", "get"]
    shared = f"c-{ref.payload['ids'][0]}"
    one.close()
    assert shared in left(store)
    assert owned.collect(store, []) == 0
    assert sh(two.open(small, ref), "cat one") == "1\n"
    two.close()
    assert shared not in left(store)

    three = OverlayBackend(store, depots=[depot])
    three.open(small, ref)
    three.retain(ref)
    three.close()
    assert shared in left(store)
    assert owned.collect(store, [shared]) == 1  # the base
    assert owned.collect(store, []) == 1
    assert left(store) == set()


def test_fetched_layers_keep_within_the_budget(
    a: OverlayBackend, small: SandboxSpec, depot: Counting, tmp_path: Path
) -> None:
    b = OverlayBackend(tmp_path / "b" / "layers", budget_bytes=3 << 20, depots=[depot])
    here, there = a.open(small), b.open(small)
    start = here.snapshot()
    refs = []
    for number in range(6):
        here.restore(start)
        here.put({"/testbed/big": bytes([number]) * (1 << 20)})
        refs.append(here.snapshot())
        publish(a.store, refs[-1], depot)
        there.restore(refs[-1])
    assert sum(name.startswith("c-") for name in left(b.store.root)) == 3
    there.restore(refs[0])  # fetched again
    assert there.get("/testbed/big") == b"\0" * (1 << 20)
    b.close()


IMPORT = """
import sys, time
from pathlib import Path
from refork.envs.swe.sandbox.layer_depot import FolderDepot
from refork.envs.swe.sandbox.layer_sharing import receive
from refork.envs.swe.sandbox.layers import LayerStore
from refork.envs.swe.sandbox.spawner import sandbox_owner
store, depot = LayerStore(Path(sys.argv[1]), sandbox_owner()), FolderDepot(Path(sys.argv[2]))
layer, slow = sys.argv[3:]
def chunks():
    for chunk in depot.get(layer):
        for start in range(0, len(chunk), 1024):
            yield chunk[start:start + 1024]
            if start > 3000 and slow == "slow":
                print("in the middle", flush=True)
                time.sleep(60)
print("ready", flush=True)
if slow == "together":
    sys.stdin.readline()
print(receive(store, layer, chunks()), flush=True)
sys.stdin.readline()
"""


def importer(store: Path, depot: FolderDepot, layer: str, how: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", IMPORT, str(store), str(depot.folder), layer, how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def published(a: OverlayBackend, small: SandboxSpec, depot: Counting) -> StateRef:
    here = a.open(small)
    here.put({f"/testbed/f{n}": os.urandom(2000) for n in range(50)})
    publish(a.store, here.snapshot(), depot)
    return here.snapshot()


def test_killed_in_mid_import_leaves_nothing_half(
    published: StateRef, b: OverlayBackend, small: SandboxSpec, depot: Counting
) -> None:
    store, layer = b.store.root, published.payload["ids"][0]
    process = importer(store, depot, layer, "slow")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "in the middle\n"]
    assert sum(1 for _ in store.glob("p-*/*/work/*")) > 0
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert f"c-{layer}" not in left(store)
    assert owned.sweep(store) == 1
    assert list(store.glob("p-*/*/work/*")) == []
    assert b.open(small, published).state_id == published.state_id


def test_two_importers_at_once_end_in_one(published: StateRef, depot: Counting, tmp_path: Path) -> None:
    store, layer = tmp_path / "b" / "layers", published.payload["ids"][0]
    processes = [importer(store, depot, layer, "together") for _ in range(3)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.stdout.readline() for process in processes if process.stdout] == [f"c-{layer}\n"] * 3
    assert [name for name in left(store) if not name.startswith("p-")] == [f"c-{layer}"]
    for process in processes:
        process.kill()
        process.wait()
    assert owned.sweep(store) == 3
    assert left(store) == set()


def test_a_depot_that_cannot_be_written_is_said(a: OverlayBackend, small: SandboxSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    here = a.open(small)
    sh(here, "echo 1 > one")
    with pytest.raises(InfraFailure, match=r"file/.*\.tar: cannot be written: File exists"):
        publish(a.store, here.snapshot(), FolderDepot(tmp_path / "file"))


def test_what_is_put_twice_is_there_once(published: StateRef, depot: Counting, b: OverlayBackend) -> None:
    layer = published.payload["ids"][0]
    whole = list(depot.get(layer))
    depot.put(layer, [b"something else"])
    assert list(depot.get(layer)) == whole
    assert os.listdir(depot.folder) == [f"{layer}.tar"]
    started = time.monotonic()
    assert receive(b.store, layer, whole) == receive(b.store, layer, whole) == f"c-{layer}"
    assert time.monotonic() - started < 5
