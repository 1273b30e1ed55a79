"""Byte-code made ahead, named by what it was made from, so that it can never be stale: a file whose text changes has
another name. It lies in the packages' folder, which sandboxes see read-only; `judge_plugin.py` reads it."""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = f".bytecode/{sys.implementation.cache_tag}-{sys.hexversion:x}"
"""Within the packages' folder; one per interpreter, whose format this is."""


def store(python_env: Path, files: Iterable[Path]) -> None:
    """Compile `files` into the packages' folder `python_env`. What does not compile is left out."""
    folder = python_env / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        data = file.read_bytes()
        target = folder / hashlib.sha256(data).hexdigest()
        if not target.exists() and (code := _compiled(data)) is not None:
            part = target.with_name(f"{target.name}.{os.getpid()}")
            part.write_bytes(code)
            part.rename(target)


def _compiled(data: bytes) -> bytes | None:
    try:
        return marshal.dumps(compile(data, "<stored>", "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return None
