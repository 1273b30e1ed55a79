"""Rows of the state DAG's file: statements, and values as they are stored."""

from __future__ import annotations

import sqlite3
import time
import zlib

COMPRESS_FROM = 512
"""Bytes from which an observation is stored compressed."""


def now() -> int:
    return time.time_ns()


def action_bytes(action: str) -> bytes:
    """Actions are what a model wrote: lone surrogates too."""
    return action.encode("utf-8", "surrogatepass")


def pack(observation: bytes) -> bytes:
    return b"z" + zlib.compress(observation, 1) if len(observation) >= COMPRESS_FROM else b"r" + observation


def unpack(stored: bytes) -> bytes:
    return zlib.decompress(stored[1:]) if stored[:1] == b"z" else stored[1:]


LOOKUP = """SELECT e.child, e.cost_s, e.observation FROM tasks t JOIN edges e ON e.task = t.id
WHERE t.name = ? AND e.state = ? AND e.action = ?"""
TOUCH = """UPDATE edges SET used = ? WHERE task = (SELECT id FROM tasks WHERE name = ?)
AND state = ? AND action = ?"""
EDGES = """SELECT e.state, e.action, e.child, e.cost_s, e.observation FROM tasks t JOIN edges e ON e.task = t.id
WHERE t.name = ? ORDER BY e.id"""


def insert_edge(
    connection: sqlite3.Connection, task: int, row: tuple[str, bytes, str, float, bytes, int]
) -> tuple[str, bytes] | None:
    """None when it was new, else (child, observation as stored) of the edge that was there."""
    done = connection.execute(
        "INSERT OR IGNORE INTO edges (task, state, action, child, cost_s, observation, used) VALUES (?,?,?,?,?,?,?)",
        (task, *row),
    )
    if done.rowcount:
        return None
    known = "SELECT child, observation FROM edges WHERE task = ? AND state = ? AND action = ?"
    child, observation = connection.execute(known, (task, *row[:2])).fetchone()
    return child, observation


def drop_oldest_tenth(connection: sqlite3.Connection) -> int:
    count = connection.execute("SELECT COUNT(*) FROM edges").fetchone()[0]
    oldest = "SELECT id FROM edges ORDER BY used LIMIT ?"
    return connection.execute(f"DELETE FROM edges WHERE id IN ({oldest})", (count // 10 + bool(count),)).rowcount


def task_id(connection: sqlite3.Connection, task: str) -> int:
    """The row of a task, made when it is new."""
    connection.execute("INSERT OR IGNORE INTO tasks (name) VALUES (?)", (task,))
    return int(connection.execute("SELECT id FROM tasks WHERE name = ?", (task,)).fetchone()[0])
