"""Makes a process forked from the preloaded interpreter look like a fresh `python -m MODULE`.

What stays different: modules already imported (that is the point), and `sys.flags` are those of the spawner, which
was started with the same environment. Standard library only; loaded inside the spawner.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

from refork.envs.swe.sandbox import linux

_STARTUP_PREFIXES = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_")


def same_start(environment: Mapping[str, str], started_with: Mapping[str, str]) -> bool:
    """Whether an interpreter started with `started_with` stands for one started with `environment`."""
    names = {n for n in (*environment, *started_with) if n.startswith(_STARTUP_PREFIXES)}
    return all(environment.get(name) == started_with.get(name) for name in names)


def module_of(argv: list[str]) -> str | None:
    """MODULE of `python -m MODULE ...`, None for any other command."""
    if len(argv) >= 3 and argv[0] in ("python", "python3") and argv[1] == "-m":
        return argv[2]
    return None


def become_fresh(request: Mapping[str, Any]) -> str:
    """Set up session, signals, environment and `sys` as a new interpreter has them; the module to run as main."""
    os.setsid()
    linux.set_dumpable(True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["-m", *request["argv"][3:]]
    sys.orig_argv = list(request["argv"])
    sys.path.insert(0, request["cwd"])
    importlib.invalidate_caches()  # a folder on the path that was not there yet is remembered as none
    for name in [n for n in sys.modules if n == "refork" or n.startswith("refork.")]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")
    return str(request["module"])


def end_with(error: BaseException) -> None:
    """What the interpreter does with an exception nobody caught, without our own frame in the traceback."""
    error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ is not None else None
    sys.excepthook(type(error), error, error.__traceback__)
    if isinstance(error, KeyboardInterrupt):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(1)
