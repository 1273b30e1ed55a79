"""Who made a folder, container or process: a label that tells a living owner from a dead one, also after pids wrap.

Standard library only. A label is 'BOOT-PID-START': the kernel's boot id without dashes, the process id, its start
time in clock ticks since boot.
"""

from __future__ import annotations

import os
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def owner(pid: int | None = None) -> str:
    """The label of process `pid` (default: this one). Raises ProcessLookupError when there is none."""
    pid = os.getpid() if pid is None else pid
    start = _start(pid)
    if start is None:
        raise ProcessLookupError(f"no process {pid}")
    return f"{_boot()}-{pid}-{start}"


def alive(label: str) -> bool:
    """Whether the process that `label` names still runs: same boot, same pid, same start time, and no zombie.

    What cannot be read as a label has no living owner.
    """
    boot, _, rest = label.partition("-")
    pid, _, start = rest.partition("-")
    return pid.isdecimal() and boot == _boot() and _start(int(pid)) == start


def _boot() -> str:
    return _BOOT.read_text().strip().replace("-", "")


def _start(pid: int) -> str | None:
    """Start time of a live process, field 22 of its stat line; the command's name before it may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]
