"""The file of the state DAG: an SQLite database in WAL mode, opened once per process, set aside when it is broken."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

VERSION = 1
BUSY_S = 10.0
"""Seconds a writer waits for the others."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, conflict TEXT);
CREATE TABLE IF NOT EXISTS edges (
    id INTEGER PRIMARY KEY, task INTEGER NOT NULL, state TEXT NOT NULL, action BLOB NOT NULL, child TEXT NOT NULL,
    cost_s REAL NOT NULL, observation BLOB NOT NULL, used INTEGER NOT NULL, UNIQUE (task, state, action));
CREATE INDEX IF NOT EXISTS edges_used ON edges (used);
"""

T = TypeVar("T")
_INHERITED: list[sqlite3.Connection] = []


class DagFile:
    """A connection that never raises: what fails is warned about once, counted, and answered with a default."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.errors = 0
        self._writable = True
        self._warned: set[str] = set()
        self._pid = -1
        self._connection: sqlite3.Connection | None = None

    def read(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """`work(connection)`, or `default` when the database cannot answer."""
        try:
            return work(self._connected())
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return default

    def write(self, work: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Like `read` in one transaction; after a full disk or a lost right to write, nothing is tried any more."""
        if not self._writable:
            return default
        try:
            connection = self._connected()
            with _transaction(connection):
                return work(connection)
        except (sqlite3.Error, OSError) as error:
            self._failed(error)
            return default

    def used_bytes(self) -> int:
        """Bytes of pages in use; what was evicted is free for new rows."""
        return self.read(_used_bytes, 0)

    def close(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            if self._connection is not None:  # it crossed a fork: neither used nor closed here, it is the parent's
                _INHERITED.append(self._connection)
            self._connection, self._pid = self._open(), os.getpid()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.with_suffix(".lock")):
            try:
                return _connect(self.path)
            except sqlite3.DatabaseError as error:
                if not _is_broken(error):
                    raise
                self._set_aside(str(error))
                return _connect(self.path)

    def _set_aside(self, reason: str) -> None:
        aside = self.path.with_suffix(".broken")
        os.replace(self.path, aside)
        for suffix in ("-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        warnings.warn(f"{self.path}: {reason}; set aside as {aside.name}, the cache starts empty", stacklevel=2)

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        if isinstance(error, sqlite3.Error) and _is_broken(error):
            self.close()  # opened anew, and set aside if it is broken still, at the next use
            with _locked(self.path.with_suffix(".lock")):
                if self.path.exists() and not _is_sound(self.path):
                    self._set_aside(str(error))
            return
        locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        self._writable = self._writable and locked
        if str(error) not in self._warned:
            self._warned.add(str(error))
            consequence = "this look-up is skipped" if locked else "the run goes on without caching new states"
            warnings.warn(f"{self.path}: {error}; {consequence}", stacklevel=2)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA journal_size_limit=16777216")
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found == 0:
            connection.executescript(f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
        elif found != VERSION:
            raise sqlite3.DatabaseError(f"made by another version ({found}, this one writes {VERSION})")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _is_broken(error: sqlite3.Error) -> bool:
    return any(sign in str(error) for sign in ("malformed", "not a database", "another version", "no such table"))


def _is_sound(path: Path) -> bool:
    try:
        connection = _connect(path)
        try:
            return connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok"
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return False


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time opens, makes or sets aside the file."""
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
