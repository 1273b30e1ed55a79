"""`refork doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shutil
import sys
import tempfile
from pathlib import Path

from refork.envs.home import home
from refork.envs.swe.sandbox.base import Backend, Finding
from rich.console import Console
from rich.table import Table

BACKENDS = {
    "overlay": "refork.envs.swe.sandbox.overlay:OverlayBackend",
    "docker": "refork.envs.swe.sandbox.docker:DockerBackend",
    "e2b": "refork.envs.swe.sandbox.e2b:E2BBackend",
    "replay": "refork.envs.swe.sandbox.replay:ReplayBackend",
}
CLINICAL = {
    "h5py": "D4RL files",
    "icu-sepsis": "refork/IcuSepsis-v0",
    "minari": "Minari data sets",
    "mpe2": "refork/Particles-v0",
    "pyarrow": "tables of patients",
    "scikit-learn": "FQE by trees",
}
"""Packages of the extra `clinical`, and what needs each."""
_GIB = 1 << 30


def doctor() -> int:
    """Show what works here: sandbox backends, Docker, Ray, GPU, W&B, disk, packages for logs.

    Exit code 1 when no sandbox works.
    """
    sections = {name: _backend(path) for name, path in BACKENDS.items()}
    sections |= {"machine": [*_cores(), *_disk(), _gpu()], "running": [_ray(), _wandb()]}
    sections["treatment from logs"] = [_package(name, use) for name, use in CLINICAL.items()]
    table = Table("part", "check", "", "found", "what to do")
    for section, findings in sections.items():
        for finding in findings:
            mark = "[green]ok[/]" if finding.ok else "[red]no[/]"
            table.add_row(section, finding.name, mark, finding.detail, "" if finding.ok else finding.remedy)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    usable = [name for name in ("overlay", "docker", "e2b") if all(f.ok for f in sections[name])]
    print(f"sandbox backends that work here: {', '.join(usable) or 'none'}")
    return 0 if usable else 1


def _backend(path: str) -> list[Finding]:
    module, _, name = path.partition(":")
    backend: type[Backend] = getattr(importlib.import_module(module), name)
    return backend.probe()


def _cores() -> list[Finding]:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    return [
        Finding("CPU cores", True, f"{cores}: up to {cores} rollout actors"),
        Finding("memory", memory >= 2, f"{memory:.1f} GiB", "2 GiB are the least for two rollout actors"),
    ]


def _disk() -> list[Finding]:
    places = {"kept between runs": home(), "temporary": Path(tempfile.gettempdir()), "here": Path.cwd()}
    return [_disk_at(name, path) for name, path in places.items()]


def _disk_at(name: str, path: Path) -> Finding:
    existing = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(existing).free / _GIB
    writable = os.access(existing, os.W_OK)
    detail = f"{path}: {free:.1f} GiB free{'' if writable else ', not writable'}"
    remedy = "free some space" if writable else "choose a writable folder (REFORK_HOME, TMPDIR, --runs)"
    return Finding(f"disk, {name}", writable and free >= 1, detail, remedy)


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("GPU", True, "none; the small policies train on the CPU")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("GPU", True, ", ".join(names))


def _ray() -> Finding:
    """Started and stopped for real: a version number says nothing about shared memory, ports or process limits."""
    from refork.cluster.local_ray import LocalRay
    from refork.envs.forkable import InfraFailure

    version = importlib.metadata.version("ray")
    try:
        LocalRay.start(1).stop()
    except InfraFailure as error:
        return Finding("Ray", False, f"{version}: {error}", "train with --rollout.actors 0 (one process, no Ray)")
    return Finding("Ray", True, f"{version}, starts here; loopback only, with a token")


def _package(name: str, use: str) -> Finding:
    try:
        return Finding(name, True, f"{importlib.metadata.version(name)}: {use}")
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, False, f"not installed: needed by {use}", "pip install 'refork[clinical]'")


def _wandb() -> Finding:
    from refork.cluster.wandb_sink import wandb_mode

    mode = wandb_mode("auto")
    detail = f"{importlib.metadata.version('wandb')}, {mode}"
    if mode == "offline":
        detail += " (no key: recorded in the run's folder, `refork sync` uploads it)"
    return Finding("W&B", True, detail)
