"""Has experience played ahead: while an update is learnt from, the next ones are being played by the policy before it.

The experience of update u is played by the weights of version max(0, u - lag), whoever is faster, so that a run is the
same run whenever it is repeated, and a resumed one goes on as one that never stopped.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, astuple, dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from refork.replay.player import GroupRequest

Play = Callable[[Sequence[GroupRequest], Mapping[str, np.ndarray], int, Any], Sequence[Any]]


@dataclass
class _Asked:
    """The experience of one update on its way."""

    requests: Sequence[GroupRequest]
    how: Any
    played: Future[Sequence[Any]] | None = None
    """None: not asked for since the run was resumed."""


class Ahead:
    """What is played, and what it is played with, in the order of the updates."""

    def __init__(self, play: Play, lag: int) -> None:
        """`lag`: updates by which the acting policy may be behind; with 0 all is played when it is needed."""
        self._play, self._lag = play, lag
        self._player = _Background() if lag else None
        self._versions: dict[int, Mapping[str, np.ndarray]] = {}
        self._asked: deque[_Asked] = deque()

    def take(
        self,
        update: int,
        last: int,
        weights: Mapping[str, np.ndarray],
        draw: Callable[[], Sequence[GroupRequest]],
        how: Callable[[int], Any],
    ) -> Sequence[Any]:
        """The experience of `update`, for which `weights` are the newest; those after it, up to `last`, are asked for.

        `draw`: the requests of the next update; `how(u)`: how those of update u are to be played. Raises what playing
        raises.
        """
        self._versions = {v: w for v, w in self._versions.items() if v >= update - self._lag} | {update: weights}
        while len(self._asked) <= min(self._lag, last - update):
            self._asked.append(_Asked(draw(), how(update + len(self._asked))))
        for number, asked in enumerate(self._asked, update):
            if asked.played is None:
                asked.played = self._begin(asked, max(0, number - self._lag))
        played = self._asked.popleft().played
        assert played is not None
        return played.result()

    def alone(self, act: Callable[[], Any]) -> Any:
        """Do something that plays as well, between the updates: never two at a time."""
        return act() if self._player is None else self._player.submit(act).result()

    def _begin(self, asked: _Asked, version: int) -> Future[Sequence[Any]]:
        weights = self._versions[version]

        def act() -> Sequence[Any]:
            return self._play(asked.requests, weights, version, asked.how)

        if self._player is not None:
            return self._player.submit(act)
        done: Future[Sequence[Any]] = Future()
        done.set_result(act())
        return done

    def state_dict(self) -> dict[str, Any]:
        """What was asked for and not yet taken, and the weights that it is played with; played again after a resume."""
        return {
            "versions": [
                [v, {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}]
                for v, weights in self._versions.items()
                if self._lag
            ],
            "asked": [[[list(astuple(r)) for r in a.requests], _plain(a.how)] for a in self._asked],
        }

    def load_state_dict(self, state: Mapping[str, Any], how: Any) -> None:
        """`how`: of the kind that the requests were to be played with."""
        self._versions = {v: {name: t.numpy() for name, t in weights.items()} for v, weights in state["versions"]}
        self._asked = deque(
            _Asked([GroupRequest(*fields) for fields in requests], _restored(saved, how))
            for requests, saved in state["asked"]
        )


def _plain(how: Any) -> Any:
    return asdict(how) if is_dataclass(how) and not isinstance(how, type) else how


def _restored(saved: Any, like: Any) -> Any:
    return TypeAdapter(type(like)).validate_python(saved) if is_dataclass(like) else saved


class _Background:
    """One thread that does one thing after the other. It ends with the process, whatever it is at."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, act: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._tasks.put((act, future))
        return future

    def _work(self) -> None:
        torch.set_num_threads(1)
        while True:
            act, future = self._tasks.get()
            try:
                future.set_result(act())
            except BaseException as error:
                future.set_exception(error)
