"""The overlay backend's own promises: verified layers, clean-up after any death, budgets, hosts that lack something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.swe.sandbox import owned, probe
from refork.envs.swe.sandbox.base import SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.cgroup import sweep_groups
from refork.envs.swe.sandbox.layers import LayerStore, sweep
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.sandbox.overlay_sandbox import OverlaySandbox
from refork.envs.swe.sandbox.spawner import sandbox_owner
from refork.envs.swe.sandbox.tables import FORMAT

from tests.envs.swe.sandbox.test_state import sh
from tests.small_disk import small_disk

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OverlayBackend]:
    """A backend with a store of its own."""
    made = OverlayBackend(tmp_path / "layers")
    yield made
    made.close()


@pytest.fixture
def small(base: Path, spec: SandboxSpec) -> SandboxSpec:
    return SandboxSpec(base, spec.base_id, preload=())


def wait_until(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def left(store: Path) -> set[str]:
    """Names in a store but for the lasting ones."""
    return {path.name for path in store.iterdir()} - {"lock", "root"}


def frozen(sandbox: OverlaySandbox, own: OverlayBackend) -> tuple[StateRef, Path]:
    sh(sandbox, "echo one > one; mkdir d; echo two > d/two; ln -s one l; rm README")
    ref = sandbox.snapshot()
    sandbox.restore(ref)
    return ref, own.store.root / ref.payload["layers"][0] / "work"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda work: (work / "one").write_text("eno\n"), "/testbed/one"),
        (lambda work: (work / "d" / "two").unlink(), "/testbed/d/two"),
        (lambda work: (work / "d" / "new").write_text(""), "/testbed/d/new"),
        (lambda work: (work / "one").chmod(0o600), "/testbed/one"),
        (lambda work: (work / "README").unlink(), "/testbed/README"),
        (lambda work: ((work / "l").unlink(), (work / "l").symlink_to("two")), "/testbed/l"),
    ],
    ids=["same size", "gone", "added", "mode", "whiteout gone", "link"],
)
def test_a_layer_that_was_touched_is_refused_by_name(
    own: OverlayBackend, small: SandboxSpec, damage: Callable[[Path], object], named: str
) -> None:
    sandbox = own.open(small)
    ref, work = frozen(sandbox, own)
    sh(sandbox, "echo on > on")
    before = sandbox.state_id
    damage(work)
    with pytest.raises(StateMismatch, match=named):
        sandbox.restore(ref)
    assert sandbox.state_id == before


def test_a_layer_that_was_only_touched_in_time_is_accepted(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    ref, work = frozen(sandbox, own)
    os.utime(work / "one", (1, 1))
    sandbox.restore(ref)
    assert sandbox.state_id == ref.state_id


def test_a_layer_that_is_gone_is_a_failure_of_ours(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    ref, work = frozen(sandbox, own)
    shutil.rmtree(work.parent)
    with pytest.raises(InfraFailure, match="gone"):
        sandbox.restore(ref)


def test_closing_leaves_nothing_but_what_is_kept(tmp_path: Path, small: SandboxSpec) -> None:
    store = tmp_path / "layers"
    backend = OverlayBackend(store)
    sandbox = backend.open(small)
    sh(sandbox, "echo kept > kept")
    kept = sandbox.snapshot()
    backend.retain(kept)
    sh(sandbox, "echo lost > lost")
    lost = sandbox.snapshot()
    backend.close()
    assert left(store) == {f"b-{FORMAT}-{small.base_id[:16]}", *kept.payload["layers"]}

    again = OverlayBackend(store)
    assert sh(again.open(small, kept), "cat kept") == "kept\n"
    with pytest.raises(InfraFailure, match="gone"):
        again.open(small, lost)
    again.close()
    assert owned.collect(store, kept.payload["layers"]) == 1
    assert left(store) == set(kept.payload["layers"])
    assert owned.collect(store, []) == 1
    assert left(store) == set()


def test_a_killed_owner_leaves_no_process_and_no_folder(tmp_path: Path, base: Path) -> None:
    store, marker = tmp_path / "layers", tmp_path / "marker"
    script = [sys.executable, str(HERE / "owner_to_kill.py"), str(store), str(base), str(marker)]
    process = subprocess.Popen(script, cwd=ROOT)
    assert wait_until(lambda: marker.exists() and "sleep 7777" in _commands(), 30)
    kept, lost, spawner_pid, *group = marker.read_text().split()
    assert (store / lost).is_dir()
    process.kill()
    process.wait()
    assert wait_until(lambda: "sleep 7777" not in _commands() and not _lives(int(spawner_pid)))
    assert sweep(store) == 1
    assert {name for name in left(store) if not name.startswith("b-")} == {kept}
    sweep_groups()
    assert not any(Path(path).exists() for path in group)
    assert str(store) not in Path("/proc/self/mountinfo").read_text()


def _commands() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_living_owner_is_not_swept(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    sh(sandbox, "echo here > here")
    ref = sandbox.snapshot()
    assert sweep(own.store.root) == 0
    assert owned.collect(own.store.root, []) == 0
    sandbox.restore(ref)
    assert sh(sandbox, "cat here") == "here\n"


def test_a_spawner_that_dies_fails_its_command_and_is_replaced(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    sh(sandbox, "echo 1 > one")
    threading.Timer(0.3, os.kill, (own.spawner(small).pid, 9)).start()
    with pytest.raises(InfraFailure, match="died"):
        sandbox.run(["sleep", "20"])
    assert sh(sandbox, "cat one") == "1\n"
    first = own.spawner(small).pid
    os.kill(first, 9)
    assert wait_until(lambda: not _lives(first))
    assert sh(sandbox, "cat one") == "1\n"
    assert own.spawner(small).pid != first


def test_layers_beyond_the_budget_make_room_but_not_those_in_use(tmp_path: Path, small: SandboxSpec) -> None:
    backend = OverlayBackend(tmp_path / "layers", budget_bytes=3 << 20)
    sandbox = backend.open(small)
    start = sandbox.snapshot()
    refs = []
    for number in range(6):
        sandbox.restore(start)
        sandbox.put({"/testbed/big": bytes([number]) * (1 << 20)})
        refs.append(sandbox.snapshot())
    sandbox.restore(refs[-1])
    assert sandbox.get("/testbed/big") == b"\5" * (1 << 20)
    with pytest.raises(InfraFailure, match="room"):
        sandbox.restore(refs[0])
    backend.close()


def test_a_full_host_disk_is_a_failure_of_ours(tmp_path: Path, small: SandboxSpec) -> None:
    with small_disk(tmp_path / "disk", "40m") as disk:
        backend = OverlayBackend(disk / "layers")
        sandbox = backend.open(small)
        sh(sandbox, "echo fine > fine")
        with pytest.raises(InfraFailure, match="full"):
            sandbox.run(["sh", "-c", "head -c 60000000 /dev/zero > big || true; echo done"])
        backend.close()
        assert {name for name in left(disk / "layers") if not name.startswith("b-")} == set()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One of 40 MiB."""
    with small_disk(tmp_path / "disk", "40m,nr_inodes=4k") as place:
        yield place


def test_whatever_is_asked_of_a_full_layer_store_is_a_failure_of_ours(disk: Path, small: SandboxSpec) -> None:
    """Down to the last byte, as another process leaves it; and when there is room again, all goes on."""
    backend = OverlayBackend(disk / "layers")
    sandbox = backend.open(small)
    sh(sandbox, "echo fine > fine")
    fill(disk)
    for ask in (
        sandbox.snapshot,
        sandbox.fork,
        lambda: sandbox.put({"/testbed/more": bytes(1 << 16)}),
        lambda: sandbox.run(["true"]),
        lambda: OverlayBackend(disk / "layers"),
    ):
        with pytest.raises(InfraFailure, match="full"):
            ask()
    empty(disk)
    assert sh(backend.open(small, sandbox.snapshot()), "cat fine") == "fine\n"
    backend.close()


def test_a_base_for_which_there_is_no_room_is_copied_when_there_is(disk: Path, small: SandboxSpec) -> None:
    backend = OverlayBackend(disk / "layers")
    fill(disk)
    with pytest.raises(InfraFailure, match="full"):
        backend.open(small)
    empty(disk)
    assert sh(backend.open(small), "ls")
    backend.close()
    assert {name for name in left(disk / "layers") if not name.startswith("b-")} == set()


def test_an_empty_disk_that_was_swept_before_is_taken(disk: Path, small: SandboxSpec) -> None:
    assert sweep(disk) == 0
    backend = OverlayBackend(disk)
    assert sh(backend.open(small), "ls")
    backend.close()


def empty(disk: Path) -> None:
    for filler in disk.glob("filler*"):
        filler.unlink()


def fill(disk: Path) -> None:
    """Every byte, and every name."""
    with (disk / "filler").open("wb", 0) as file, suppress(OSError):
        while file.write(bytes(1 << 12)):
            pass
    with suppress(OSError):
        for number in range(1 << 16):
            (disk / f"filler{number}").touch()


def test_unlinked_files_cannot_fill_the_disk(tmp_path: Path, small: SandboxSpec) -> None:
    script = "import os\nfor i in range(99):\n    f = open(f'f{i}', 'wb', 0); os.unlink(f'f{i}')\n    globals()[f'f{i}'] = f\n    for _ in range(8): f.write(bytes(1 << 20))\nimport time; time.sleep(60)"  # noqa: E501
    with small_disk(tmp_path / "disk", "200m") as disk:
        backend = OverlayBackend(disk / "layers")
        sandbox = backend.open(small)
        result = sandbox.run(
            ["python", "-c", script.replace("f.write(bytes(1 << 20))", "os.write(f.fileno(), bytes(1 << 20))")]
        )
        assert (result.killed_by, result.exit_code) in (("disk", None), (None, 1))
        assert sandbox.changes == {}
        backend.close()


def test_a_thousand_sandboxes_do_not_collide(own: OverlayBackend, small: SandboxSpec) -> None:
    sandboxes = [own.open(small) for _ in range(1000)]
    for number, sandbox in enumerate(sandboxes):
        sandbox.put({"/testbed/me": str(number).encode()})
    assert [int(s.get("/testbed/me")) for s in sandboxes] == list(range(1000))
    assert len({s.state_id for s in sandboxes}) == 1000
    assert sh(sandboxes[137], "cat me") == "137"


def test_processes_share_a_store_and_its_base(tmp_path: Path, base: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from refork.envs.swe.sandbox.base import SandboxSpec\n"
        "from refork.envs.swe.sandbox.manifest import digest_tree\n"
        "from refork.envs.swe.sandbox.overlay import OverlayBackend\n"
        "backend = OverlayBackend(Path(sys.argv[1])); base = Path(sys.argv[2])\n"
        "sandbox = backend.open(SandboxSpec(base, digest_tree(base), preload=()))\n"
        "sandbox.put({'/testbed/x': sys.argv[3].encode()}); sandbox.snapshot()\n"
        "print(sandbox.run(['cat', 'x', 'README']).output); backend.close()\n"
    )
    store = tmp_path / "layers"
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(store), str(base), str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in started] == [f"{n}read me" for n in range(4)]
    assert {name[:2] for name in left(store)} == {"b-"}


def test_a_fork_of_the_process_cannot_use_or_harm_it(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    sh(sandbox, "echo 1 > one")
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            sandbox.run(["true"])
        except InfraFailure as error:
            os.write(writer, str(error).encode())
        sandbox.close()
        own.close()
        os._exit(0)
    os.close(writer)
    assert b"across a fork" in os.read(reader, 1000)
    os.close(reader)
    os.wait()
    assert sh(sandbox, "cat one") == "1\n"


def test_it_outlives_the_thread_that_made_it(tmp_path: Path, small: SandboxSpec) -> None:
    made: list[tuple[OverlayBackend, OverlaySandbox]] = []

    def make() -> None:
        backend = OverlayBackend(tmp_path / "layers")
        sandbox = backend.open(small)
        sh(sandbox, "echo 1 > one")
        made.append((backend, sandbox))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    backend, sandbox = made[0]
    assert sh(sandbox, "cat one") == "1\n"
    backend.close()


def test_nothing_is_mounted_on_the_host_and_no_descriptor_is_lost(own: OverlayBackend, small: SandboxSpec) -> None:
    sandbox = own.open(small)
    sh(sandbox, "true")
    mounts, descriptors = Path("/proc/self/mountinfo").read_text(), len(os.listdir("/proc/self/fd"))
    for number in range(20):
        sh(sandbox, f"echo {number} > x")
        sandbox.snapshot()
        sandbox.fork().close()
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)


def test_a_wrong_base_id_is_said(own: OverlayBackend, base: Path) -> None:
    with pytest.raises(ValueError, match="digest_tree"):
        own.open(SandboxSpec(base, "0" * 64))


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user sandboxes run under the same id")
def test_an_env_that_sandboxes_cannot_read_is_said(
    own: OverlayBackend, base: Path, spec: SandboxSpec, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    sandbox = own.open(SandboxSpec(base, spec.base_id, python_env=closed))
    with pytest.raises(UnsupportedHost, match=r"cannot read .*closed.*chmod"):
        sandbox.run(["true"])


def test_a_store_of_another_user_is_said(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    folder = tmp_path / "layers"
    (folder / "x").mkdir(parents=True)
    with pytest.raises(UnsupportedHost, match="REFORK_HOME"):
        LayerStore(folder, sandbox_owner())


def test_a_right_that_is_missing_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = tmp_path / "max_user_namespaces"
    switch.write_text("0\n")
    monkeypatch.setattr(probe, "_USERNS_SWITCHES", ((str(switch), "0"),))
    finding = next(f for f in probe.probe() if f.name == "user namespaces")
    assert not finding.ok
    message = str(probe.unsupported("unshare of namespaces: No space left on device"))
    assert "unshare of namespaces: No space left on device" in message
    assert finding.remedy in message
    assert "sysctl -w" in message


@pytest.mark.skipif(os.geteuid() != 0, reason="the suite itself runs as an ordinary user")
def test_an_ordinary_user_gets_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = Path("/usr/bin/python3")
    version = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, text=True
    )
    if not python.exists() or version.stdout != "True\n":
        pytest.skip("needs a /usr/bin/python3 that an ordinary user can start, 3.11 or newer")
    place = Path("/var/tmp") / f"refork-user-{os.getpid()}"
    package = place / "lib" / "refork" / "envs"
    try:
        (package / "swe").mkdir(parents=True)
        for name in ("forkable.py", "home.py", "owner.py"):
            shutil.copy(ROOT / "envs" / name, package)
        shutil.copytree(ROOT / "envs" / "swe" / "sandbox", package / "swe" / "sandbox")
        shutil.copy(HERE / "ordinary_user.py", place)
        (place / "home").mkdir()
        os.chown(place / "home", 65534, 65534)
        command = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "env",
            "-i",
            f"PYTHONPATH={place}/lib",
        ]
        script = [str(python), str(place / "ordinary_user.py"), str(place / "home")]
        done = subprocess.run(
            [*command, f"HOME={place}/home", *script], capture_output=True, text=True, cwd="/", check=False
        )
    finally:
        shutil.rmtree(place)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("memory") in ([1, None], [None, "memory"])
    assert seen == {
        "user": 65534,
        "id": "1000\n",
        "closed": 0,
        "changes": {
            "/testbed/c": ["dir", 0],
            "/testbed/c/f": ["file", 0],
            "/testbed/d": ["dir", 0o500],
            "/testbed/d/e": ["dir", 0o755],
            "/testbed/m": ["file", 0],
            "/testbed/n": ["file", 0],
            "/testbed/pkg": ["deleted", 0],
        },
        "after put": ".:\nd\nm\nn\npkg\n\nd:\ne\nnew\n\npkg:\nb.py\ncat: n: Permission denied\n",
        "fork": True,
        "restored": True,
        "squashed": "45\n1\n",
        "caps": "5\n",
        "warm": 0,
        "timeout": "wall",
        "home": 2,
        "left": ["layers/lock", "layers/root"],
    }
