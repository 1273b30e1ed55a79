"""The state DAG: exact round trips, concurrent writers, bounds, nondeterminism, and every way the file can fail."""

import itertools
import multiprocessing
import os
import sqlite3
import time
import warnings
from pathlib import Path

import pytest
from refork.envs.forkable import Edge, ExecutionCache
from refork.replay.dag import StateDag
from refork.replay.dag_file import VERSION

EDGE = Edge(b"1 failed", 0.25, "b" * 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dag" / "dag.sqlite"


def _fill(path: Path, worker: int, count: int) -> None:
    dag = StateDag(path)
    for i in range(count):
        dag.record("shared", f"s{i}", "run", Edge(b"same" * i, 0.1, f"s{i + 1}"))
        dag.record(f"own{worker}", f"s{i}", "run", Edge(str(worker).encode(), 0.1, f"s{i + 1}"))
    assert dag.errors == 0
    dag.close()


def _record_many(dag: StateDag) -> None:
    for i in range(300):
        dag.record("t", f"s{i}", "run", Edge(os.urandom(2000), 0.0, "x"))


def _look_up_all(dag: StateDag) -> None:
    for i in range(200):
        dag.lookup("t", f"s{i}", "run")


def test_an_edge_comes_back_from_memory_and_from_disk(path: Path) -> None:
    dag: ExecutionCache = StateDag(path)
    assert dag.lookup("t", "a", "run") is None
    dag.record("t", "a", "run", EDGE)
    assert dag.lookup("t", "a", "run") == EDGE
    other = StateDag(path)
    assert other.lookup("t", "a", "run") == EDGE
    assert other.lookup("t", "a", "run") == EDGE
    assert other.lookup("u", "a", "run") is None
    assert (other.counts.disk_hits, other.counts.memory_hits, other.counts.misses) == (1, 1, 1)


@pytest.mark.parametrize("observation", [b"", b"\x00\xff\xfe", b"z" * 511, b"z" * 512, os.urandom(100_000)])
def test_any_bytes_and_any_text_come_back_exactly(path: Path, observation: bytes) -> None:
    action = "printf '\x00\udc80é'"
    StateDag(path).record("t", "a", action, Edge(observation, 0.0, "b"))
    assert StateDag(path).lookup("t", "a", action) == Edge(observation, 0.0, "b")
    assert list(StateDag(path).edges("t")) == [("a", action, Edge(observation, 0.0, "b"))]


def test_nodes_are_both_ends_of_edges(path: Path) -> None:
    dag = StateDag(path)
    dag.record("t", "a", "x", Edge(b"", 0.0, "b"))
    dag.record("t", "a", "y", Edge(b"", 0.0, "c"))
    dag.record("u", "d", "x", Edge(b"", 0.0, "e"))
    assert dag.nodes("t") == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("second", "message"),
    [(Edge(b"1 failed", 9.0, "c" * 64), "led to bbbb"), (Edge(b"2 failed", 0.25, "b" * 64), "two observations")],
)
def test_an_edge_that_differs_makes_its_task_uncached_everywhere(path: Path, second: Edge, message: str) -> None:
    dag, reader = StateDag(path), StateDag(path, refresh_s=0.0)
    dag.record("t", "a", "run", EDGE)
    dag.record("other", "a", "run", EDGE)
    assert reader.lookup("t", "a", "run") == EDGE
    with pytest.warns(UserWarning, match=message):
        dag.record("t", "a", "run", second)
    for cache in (dag, reader, StateDag(path)):
        assert cache.lookup("t", "a", "run") is None
        assert list(cache.nondeterministic()) == ["t"]
        assert cache.lookup("other", "a", "run") == EDGE


def test_cost_alone_may_differ(path: Path) -> None:
    dag = StateDag(path)
    dag.record("t", "a", "run", EDGE)
    dag.record("t", "a", "run", Edge(EDGE.observation, 7.0, EDGE.child_id))
    assert dag.nondeterministic() == {}


def test_many_processes_write_at_once(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(path, w, 150)) for w in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [w.exitcode for w in workers] == [0] * 6
    dag = StateDag(path)
    assert len(list(dag.edges("shared"))) == 150
    assert [len(list(dag.edges(f"own{w}"))) for w in range(6)] == [150] * 6
    assert dag.nondeterministic() == {}


def test_a_connection_is_not_carried_over_a_fork(path: Path) -> None:
    dag = StateDag(path)
    dag.record("t", "a", "run", EDGE)
    child = os.fork()
    if child == 0:
        dag.record("t", "child", "run", EDGE)
        os._exit(0 if dag.lookup("t", "a", "run") == EDGE and dag.errors == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    dag.record("t", "parent", "run", EDGE)
    assert {state for state, _, _ in StateDag(path).edges("t")} == {"a", "child", "parent"}


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_the_file_is_bounded_and_keeps_what_was_used_last(path: Path, memory_bytes: int) -> None:
    dag = StateDag(path, max_bytes=1_000_000, memory_bytes=memory_bytes)
    for i in range(640):
        dag.record("t", f"s{i}", "run", Edge(os.urandom(4000), 0.0, "x"))
        assert dag.lookup("t", "s0", "run") is not None
    assert dag.used_bytes() <= 1_300_000  # 64 records between checks
    assert path.stat().st_size <= 1_600_000
    kept = {state for state, _, _ in dag.edges("t")}
    assert dag.counts.evicted == 640 - len(kept)
    assert "s639" in kept
    assert "s0" in kept
    assert "s1" not in kept


def test_memory_is_bounded_too(path: Path) -> None:
    dag = StateDag(path, memory_bytes=10_000)
    for i in range(20):
        dag.record("t", f"s{i}", "run", Edge(os.urandom(1000), 0.0, "x"))
    assert [dag.lookup("t", f"s{i}", "run") is not None for i in range(20)] == [True] * 20
    assert dag.counts.disk_hits >= 10


@pytest.mark.parametrize("damage", ["text", "header", "version", "middle"])
def test_a_broken_file_is_set_aside_with_a_warning(path: Path, damage: str) -> None:
    dag = StateDag(path)
    for i in range(200):
        dag.record("t", f"s{i}", "run", Edge(os.urandom(1000), 0.0, "x"))
    dag.close()
    if damage == "version":
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA user_version={VERSION + 1}")
        connection.close()
    else:
        content = bytearray(path.read_bytes())
        start, stop = {"text": (0, len(content)), "header": (0, 50), "middle": (5000, len(content))}[damage]
        content[start:stop] = b"no database " * ((stop - start) // 12 + 1)
        path.write_bytes(bytes(content))
    again = StateDag(path)
    with pytest.warns(UserWarning, match="set aside as dag.broken"):
        _look_up_all(again)
    again.record("t", "a", "run", EDGE)
    assert StateDag(path).lookup("t", "a", "run") == EDGE


def test_a_full_disk_is_warned_about_once_and_the_run_goes_on(path: Path) -> None:
    dag = StateDag(path)
    dag.record("t", "a", "run", EDGE)
    dag._file._connected().execute("PRAGMA max_page_count=1")  # SQLite answers as on a full disk
    with pytest.warns(UserWarning, match="full; the run goes on without caching") as caught:
        _record_many(dag)
    assert len(caught) == 1
    assert dag.lookup("t", "a", "run") == EDGE
    assert dag.errors == 1


def test_a_folder_that_cannot_be_made_is_warned_about_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    dag = StateDag(tmp_path / "file" / "dag.sqlite")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dag.record("t", "a", "run", EDGE)
        dag.record("t", "b", "run", EDGE)
        assert dag.lookup("t", "c", "run") is None
    assert len(caught) == 1
    assert dag.lookup("t", "a", "run") == EDGE  # from memory


def test_a_writer_killed_in_the_middle_leaves_a_sound_file(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        writer = context.Process(target=_write_for_ever, args=(path,))
        writer.start()
        time.sleep(0.3)
        writer.kill()
        writer.join(10)
    dag = StateDag(path)
    edges = list(dag.edges("t"))
    assert len(edges) > 10
    assert all(edge == Edge(state.encode() * 100, 0.0, state) for state, _, edge in edges)
    dag.record("t", "after", "run", EDGE)
    assert (dag.lookup("t", "after", "run"), dag.errors) == (EDGE, 0)


def _write_for_ever(path: Path) -> None:
    dag = StateDag(path)
    for i in itertools.count():
        dag.record(
            "t", f"{os.getpid()}/{i}", "run", Edge(f"{os.getpid()}/{i}".encode() * 100, 0.0, f"{os.getpid()}/{i}")
        )
