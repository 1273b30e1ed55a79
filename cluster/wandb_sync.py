"""Uploads what W&B recorded offline, by W&B's own `sync`, one segment of a run after another.

A segment that was uploaded has W&B's mark beside it (`.wandb.synced`). Nothing is uploaded out of order: W&B moves the
steps of rows that come after later ones.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

from refork.cluster.wandb_files import cut_torn_record, records, segments
from refork.cluster.wandb_sink import has_key, places
from refork.envs.forkable import BadInput, InfraFailure

REACH_TIMEOUT_S = 10
PARTS = ("sender:", "runfiles:", "filestream:", "filetransfer:")
"""Parts of W&B whose errors mean that something was not uploaded."""
RETRIES = 3
"""Of one request, before an upload is given up."""


class Sent(NamedTuple):
    """What of one run was uploaded."""

    segments: int
    rows: int
    models: int
    url: str | None
    """Where it can be looked at; None when W&B did not say."""
    refused: list[str]
    """What beside the rows (models, pictures) was not taken, in W&B's words."""


def unsent(run: Path) -> list[Path]:
    """The segments of the run in this folder that were recorded offline and not uploaded yet, oldest first."""
    return [p for p in segments(run, offline=True) if not p.with_suffix(".wandb.synced").exists()]


def check_server() -> None:
    """Raises BadInput without a key, InfraFailure when the server does not answer in time."""
    if not has_key():
        raise BadInput("no W&B key: set WANDB_API_KEY or run `wandb login`, then sync again")
    url = server()
    try:
        urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return  # it answers
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InfraFailure(f"{url}: W&B cannot be reached ({reason}); nothing was sent, sync again later") from error


def server() -> str:
    """The address of the server: WANDB_BASE_URL, that which `wandb login --host` wrote down, or W&B's own."""
    if url := os.environ.get("WANDB_BASE_URL"):
        return url
    written = ConfigParser(interpolation=None)
    written.read(Path(os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb") / "settings")
    return written.get("default", "base_url", fallback="https://api.wandb.ai")


def upload(run: Path) -> Sent:
    """Upload what is unsent. Raises InfraFailure with what W&B said; segments sent before stay sent."""
    sent, rows, models, url = 0, 0, 0, None
    refused: list[str] = []
    for segment in unsent(run):
        cut_torn_record(segment)
        before = _logs(run)
        said = _sync(run, segment)
        if not segment.with_suffix(".wandb.synced").exists():
            raise InfraFailure(f"{run}: {segment.parent.name} was not sent: {_reason(said)}; sync again later")
        refused += [line for path in sorted(_logs(run) - before) for line in _refused(path)]
        kinds = [(record.WhichOneof("record_type"), record.artifact.type) for record in records(segment)]
        sent, url = sent + 1, _url(said) or url
        rows += sum(kind == "history" for kind, _ in kinds)
        models += sum(kind == "artifact" and what == "model" for kind, what in kinds)
    return Sent(sent, rows, models, url, refused)


def _sync(run: Path, segment: Path) -> str:
    """What W&B printed; its exit code is 0 also when it fails."""
    limits = {f"WANDB__{what}_RETRY_MAX": str(RETRIES) for what in ("GRAPHQL", "FILE_STREAM", "FILE_TRANSFER")}
    environment = {**os.environ, **places(run), **limits, "WANDB_DIR": str(run.absolute())}
    environment.pop("WANDB_MODE", None)  # `offline` would keep it from sending
    command = [sys.executable, "-m", "wandb", "sync", str(segment.parent)]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.stdout.decode(errors="replace")


def _logs(run: Path) -> set[Path]:
    return set(run.glob("wandb/logs/debug-sync.*.log"))


def _refused(log: Path) -> list[str]:
    """W&B marks a segment as sent when a model or a file of it was refused, and says so in its log only."""
    found = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        entry = json.loads(line) if line.startswith("{") and line.endswith("}") else {}
        message = str(entry.get("msg", ""))
        if entry.get("level") == "ERROR" and message.startswith(PARTS):
            found.append(" ".join(message.split()))
    return found


def _url(said: str) -> str | None:
    found = re.findall(r"View run .* at (https?://\S+)", said)
    return found[-1] if found else None


def _reason(said: str) -> str:
    """W&B's error, or the last thing it printed."""
    lines = [line.removeprefix("wandb:").strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR").strip() for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["W&B printed nothing"])[-1]
