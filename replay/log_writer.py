"""Writes a log piece by piece, so that one larger than memory can be converted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogArrays, LogSpec
from refork.replay.transitions import ARRAYS, publish


class LogWriter:
    """A context: `append` whole episodes; the folder appears, whole, when it is left without an exception."""

    def __init__(self, folder: Path, spec: LogSpec) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        self._folder, self._spec = folder, spec
        self._partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        self._arrays: dict[str, _GrowingArray] = {}
        self._transitions = 0
        self.patient_names: tuple[str, ...] = ()
        """Set before the end: name of patient number k."""
        self.notes: Mapping[str, Any] = {}
        """Set before the end: what the card says about how the log was read."""

    def __enter__(self) -> LogWriter:
        return self

    def append(self, piece: LogArrays) -> None:
        """Whole episodes; patients are numbered over the whole log, `starts` from 0."""
        for name in ARRAYS:
            array = getattr(piece, name)
            if name == "state_features" and name in self._arrays:
                continue
            if array is not None:
                values = array[1:] + self._transitions if name == "starts" and self._transitions else array
                self._array(name, values).append(values)
        self._transitions += len(piece.rewards)

    def _array(self, name: str, like: np.ndarray) -> _GrowingArray:
        if name not in self._arrays:
            self._arrays[name] = _GrowingArray(self._partial / f"{name}.npy", like)
        return self._arrays[name]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for array in self._arrays.values():
                array.close()
            if kind is None:
                self._publish()
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _publish(self) -> None:
        if not self._transitions:
            raise BadInput(f"{self._folder}: no decisions were found, so there is no log to write")
        publish(self._partial, self._folder, self._spec, self.patient_names, self.notes)


class _GrowingArray:
    """One .npy file whose first axis grows; numpy's header leaves room for its length."""

    def __init__(self, path: Path, like: np.ndarray) -> None:
        self._dtype, self._rest, self._length = like.dtype, like.shape[1:], 0
        self._file: BinaryIO = path.open("w+b")
        self._header()

    def _header(self) -> None:
        shape = (self._length, *self._rest)
        described = np.lib.format.dtype_to_descr(self._dtype)
        np.lib.format.write_array_header_1_0(self._file, {"descr": described, "fortran_order": False, "shape": shape})

    def append(self, values: np.ndarray) -> None:
        """Raises ValueError when rows are of another kind than the first."""
        if values.dtype != self._dtype or values.shape[1:] != self._rest:
            raise ValueError(f"{self._file.name}: {values.dtype}{values.shape} after {self._dtype}{self._rest}")
        self._file.write(np.ascontiguousarray(values).data)
        self._length += len(values)

    def close(self) -> None:
        """Writes the length that was reached."""
        if not self._file.closed:
            self._file.seek(0)
            self._header()
            self._file.close()
