"""The stream to a supervisor and the pool of containers, without a daemon."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest
from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Limits
from refork.envs.swe.sandbox.docker_link import FRAME, STREAM, Link
from refork.envs.swe.sandbox.docker_pool import KEEP, Kind, Pool
from refork.envs.swe.sandbox.docker_state import applied
from refork.envs.swe.sandbox.manifest import Entry, difference

KIND = Kind("image", (), (), Limits())


def frame(header: object, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return FRAME.pack(len(text), len(body)) + text + body


@pytest.fixture
def ends() -> Iterator[tuple[Link, socket.socket]]:
    ours, theirs = socket.socketpair()
    link = Link(ours, "c1")
    yield link, theirs
    link.close()
    theirs.close()


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_a_reply_arrives_in_any_pieces_with_complaints_between(ends: tuple[Link, socket.socket], piece: int) -> None:
    link, theirs = ends
    reply = frame({"a": 1}, bytes(range(256)))
    for start in range(0, len(reply), piece):
        part = reply[start : start + piece]
        theirs.sendall(STREAM.pack(1, len(part)) + part + STREAM.pack(2, 2) + b"hm")
    assert link.ask({"op": "x"}, b"body", wait_s=5) == ({"a": 1}, bytes(range(256)))
    assert theirs.recv(1000) == frame({"op": "x"}, b"body")


def test_a_body_in_parts_has_its_size_in_front(ends: tuple[Link, socket.socket]) -> None:
    link, theirs = ends
    reply = frame({})
    theirs.sendall(STREAM.pack(1, len(reply)) + reply)
    link.ask({"op": "x"}, [b"ab", b"", b"c"], 3, wait_s=5)
    assert theirs.recv(1000) == frame({"op": "x"}, b"abc")


def test_a_dead_supervisor_is_quoted_and_stays_dead(ends: tuple[Link, socket.socket]) -> None:
    link, theirs = ends
    theirs.sendall(STREAM.pack(2, 9) + b"MemoryErr")
    theirs.close()
    for _ in range(2):
        with pytest.raises(InfraFailure, match=r"^container c1 died"):
            link.ask({"op": "x"}, wait_s=5)
    assert link.broken is not None


def test_a_silent_supervisor_is_not_waited_for_for_ever(ends: tuple[Link, socket.socket]) -> None:
    with pytest.raises(InfraFailure, match="container c1 does not answer"):
        ends[0].ask({"op": "x"}, wait_s=0.05)


class Fake:
    """A container that only remembers that it was removed."""

    def __init__(self) -> None:
        self.link = Link(socket.socketpair()[0], "fake")
        self.base_id = ""
        self.removed = False

    def remove(self) -> None:
        self.removed = True


class Factory:
    def __init__(self) -> None:
        self.made: list[Fake] = []
        self.enough = threading.Semaphore(0)

    def __call__(self, kind: Kind) -> Fake:
        self.made.append(Fake())
        self.enough.release()
        return self.made[-1]


def test_the_pool_gives_back_the_container_that_held_the_base() -> None:
    factory = Factory()
    pool = Pool(factory, 0)  # type: ignore[arg-type]
    taken = [pool.take(KIND, base) for base in ("a", "b", "c")]
    for container in taken:
        pool.give(KIND, container)
    assert pool.take(KIND, "b") is taken[1]
    assert pool.take(KIND, "other") is taken[2]
    assert pool.take(KIND, "other") is taken[0]
    assert len(factory.made) == 3
    pool.close()


def test_the_pool_makes_spares_ahead_and_removes_all_at_its_end() -> None:
    factory = Factory()
    pool = Pool(factory, 2)  # type: ignore[arg-type]
    first = pool.take(KIND, "a")
    for _ in range(3):
        assert factory.enough.acquire(timeout=5)
    pool.give(KIND, first)
    pool.close()
    assert len(factory.made) == 3
    assert all(fake.removed for fake in factory.made)


def test_the_pool_keeps_no_broken_container_and_not_too_many() -> None:
    factory = Factory()
    pool = Pool(factory, 0)  # type: ignore[arg-type]
    taken = [pool.take(KIND, "a") for _ in range(KEEP + 2)]
    taken[0].link.close()
    for container in taken:
        pool.give(KIND, container)
    assert [fake.removed for fake in factory.made] == [True] + [False] * KEEP + [True]
    pool.close()


def test_changes_made_to_a_base_are_its_difference_again() -> None:
    folder, old, new = Entry("dir", 0o755, ""), Entry("file", 0o644, "1"), Entry("file", 0o644, "2")
    gone = Entry("deleted", 0, "")
    base = {"/t": folder, "/t/d": folder, "/t/d/x": old, "/t/e": folder, "/t/e/y": old, "/t/f": old}
    changes = {"/t/d": gone, "/t/e": new, "/t/f": folder, "/t/f/z": new}
    whole = applied(base, changes)
    assert whole == {"/t": folder, "/t/e": new, "/t/f": folder, "/t/f/z": new}
    assert difference(base, whole) == changes
