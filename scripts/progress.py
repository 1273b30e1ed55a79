"""What a run shows while it runs: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

WINDOW = 20
"""Updates that rates and shares are taken over."""

Headline = Callable[[Sequence[Mapping[str, float]]], list[str]]


class Progress:
    """Rate, what the family of environments has to say of the latest updates, infra errors, time left."""

    def __init__(
        self,
        updates: int,
        headline: Headline,
        done: int = 0,
        console: Console | None = None,
        interval_s: float = 5.0,
    ) -> None:
        """`updates`: of the whole run; `done`: already behind a resumed one. Plain lines come every `interval_s`."""
        self._headline = headline
        self._updates, self._done, self._interval = updates, done, interval_s
        self._console = console or Console(file=sys.stderr)
        self._live = Live(console=self._console, refresh_per_second=4) if self._console.is_terminal else None
        self._groups = 0
        self._recent: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=WINDOW)
        self._last = self._printed = time.monotonic()
        if self._live:
            self._live.start()

    def group(self, experience: Any) -> None:
        """A unit of work was played."""
        self._groups += 1
        if self._live:
            self._live.update(Text(self._line()))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """An update is done."""
        now = time.monotonic()
        self._recent.append((now - self._last, metrics))
        self._last, self._done, self._groups = now, step, 0
        if self._live:
            self._live.update(Text(self._line()))
        elif now - self._printed >= self._interval or step in (1, self._updates):
            self._printed = now
            self._console.print(self._line(), highlight=False, soft_wrap=True)

    def close(self, failed: bool = False) -> None:
        if self._live:
            self._live.stop()

    def _line(self) -> str:
        parts = [f"update {self._done}/{self._updates}"]
        if self._groups:
            parts.append(f"+{self._groups} groups")
        if self._recent:
            seconds = sum(s for s, _ in self._recent)
            rows = [row for _, row in self._recent]
            parts.append(_rate(rows, max(seconds, 1e-9)))
            parts += self._headline(rows)
            if infra := _sum(rows, "infra_errors"):
                parts.append(f"infra errors {infra:.0f}")
            left = (self._updates - self._done) * seconds / len(rows)
            parts.append(f"{_clock(left)} left")
        return "  ".join(parts)


def _rate(rows: list[Mapping[str, float]], seconds: float) -> str:
    """Episodes played; where nothing is played, what was learnt from."""
    episodes, steps = _sum(rows, "trajectories"), _sum(rows, "steps")
    return f"{steps / seconds:,.0f} transitions/s" if steps and not episodes else f"{episodes / seconds:.1f} episodes/s"


def _sum(rows: list[Mapping[str, float]], name: str) -> float:
    return sum(row.get(name, 0.0) for row in rows)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
