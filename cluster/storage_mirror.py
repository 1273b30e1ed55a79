"""Sends a run to its storage, checkpoint by checkpoint.

What a checkpoint rests on (job, metrics, trajectories) goes first, its own files next and COMMIT last: whatever is cut
off at whatever point, the newest committed one there is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from refork.cluster.checkpoint_folder import COMMIT, age
from refork.cluster.retention import Retention
from refork.cluster.storage import CHECKPOINTS, Storage, log, reason
from refork.cluster.storage_writer import TakenOver, check

TOP = ("job.toml", "versions.json", "metrics.jsonl")
TRAJECTORIES = "trajectories"
LONGEST_WAIT = 8
"""Checkpoints after which a storage that failed again and again is tried once more."""


class Mirror:
    """One run's copy in a storage."""

    def __init__(self, storage: Storage, folder: Path, retention: Retention) -> None:
        """`storage`: the run's own. `folder`: the run's, which its claim has marked (`storage_writer.claim`)."""
        self.storage, self._folder, self._retention = storage, folder, retention
        self._sent: dict[str, tuple[int, int]] | None = None
        """Size and time of change of what is there; None: not looked yet."""
        self.there: str | None = None
        """The newest checkpoint that this process has sent."""
        self._failures = self._wait = 0
        self.why = ""
        """What failed last."""

    def push(self, path: Path, now: bool = False) -> None:
        """Send a committed checkpoint and what it rests on; then drop there what is no longer kept.

        A failure is said once, and tried again at a later checkpoint: the next, then after 2, 4 ... `now`: at once.
        Raises TakenOver when another machine has taken the run over.
        """
        if self._wait and not now:
            self._wait -= 1
            return
        try:
            check(self.storage, self._folder)
            self._send(path)
        except TakenOver:
            raise
        except Exception as error:  # whatever the protocol's library raises must not end training
            self._failed(error)
            return
        if self._failures:
            log.warning("%s: answers again; %s is there", self.storage.url, path.name)
        self._failures, self.there = 0, path.name

    def _failed(self, error: Exception) -> None:
        self.why = reason(error)
        if not self._failures:
            log.warning(
                "%s: a checkpoint could not be sent: %s; the run goes on, later checkpoints try again",
                self.storage.url,
                self.why,
            )
        self._wait = min(2**self._failures, LONGEST_WAIT) - 1
        self._failures += 1

    def _send(self, path: Path) -> None:
        for name in self._changed():
            stat = (self._folder / name).stat()
            self.storage.put(self._folder / name, name)
            self._known()[name] = (stat.st_size, stat.st_mtime_ns)
        whole, files = self.storage.checkpoints()
        target = f"{CHECKPOINTS}/{path.name}"
        if path.name not in whole:
            for file in sorted(path.iterdir(), key=lambda file: file.name == COMMIT):
                self.storage.put(file, f"{target}/{file.name}")
            whole = sorted([*whole, path.name], key=age)
        self._prune(whole, {name: inside for name, inside in files.items() if name != path.name})

    def _changed(self) -> Iterator[str]:
        """Paths below the run's folder of what is not there as it is here."""
        known = self._known()
        trajectories = sorted(p for p in (self._folder / TRAJECTORIES).rglob("*") if p.is_file())
        for path in [*(self._folder / name for name in TOP), *trajectories]:
            name = path.relative_to(self._folder).as_posix()
            if path.exists() and known.get(name) != (path.stat().st_size, path.stat().st_mtime_ns):
                yield name

    def _known(self) -> dict[str, tuple[int, int]]:
        """Of a resumed run, trajectories older than its checkpoints that are there in full are not sent again."""
        if self._sent is None:
            self._sent = {}
            begun = (self._folder / "writer").stat().st_mtime_ns
            for name, size in self.storage.files(TRAJECTORIES).items():
                path = self._folder / TRAJECTORIES / name
                if path.exists() and path.stat().st_size == size and path.stat().st_mtime_ns < begun:
                    self._sent[f"{TRAJECTORIES}/{name}"] = (size, path.stat().st_mtime_ns)
        return self._sent

    def _prune(self, whole: list[str], files: dict[str, list[str]]) -> None:
        """COMMIT goes first, so that a deletion that is cut off leaves no checkpoint; half sent ones go too."""
        kept = self._retention.kept(whole)
        for name, inside in files.items():
            if name not in kept:
                self.storage.delete(sorted(inside, key=lambda file: not file.endswith(f"/{COMMIT}")))
                self.storage.delete_folder(f"{CHECKPOINTS}/{name}")
