"""Whether a log folder is sound: arrays of the lengths they promise, values in range, ends where episodes end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogArrays
from refork.replay import validation as check
from refork.replay.validation import Place

BLOCK = 1 << 18


def check_log(log: LogArrays, file: str) -> None:
    """Raises BadInput naming array, row (from 0) and what is expected; the log may be larger than memory."""
    _check_kinds(log, file)
    _check_starts(log, file)
    _check_shapes(log, file)
    _check_rows(log, file)
    _check_ends(log, file)


def _check_kinds(log: LogArrays, file: str) -> None:
    states, discrete = log.spec.observation.kind == "states", log.spec.action.kind == "discrete"
    whole, real, truth = ("iu", "whole numbers"), ("f", "real numbers"), ("b", "truth values")
    kinds = dict.fromkeys(("rewards", "behaviour", "dt"), real) | dict.fromkeys(("starts", "patients"), whole)
    kinds |= dict.fromkeys(("terminated", "truncated", "allowed"), truth)
    kinds |= {"observations": whole if states else real, "actions": whole if discrete else real}
    for name, (expected, words) in kinds.items():
        array = getattr(log, name)
        if array is not None and array.dtype.kind not in expected:
            raise BadInput(f"{file}: {name}.npy: found {array.dtype}, expected {words}; write the log again")


def _check_starts(log: LogArrays, file: str) -> None:
    starts = log.starts
    if len(starts) < 2 or len(log.rewards) == 0:
        raise BadInput(f"{file}: holds no transitions; there is nothing to learn from")
    if starts[0] != 0 or starts[-1] != len(log.rewards):
        found = f"{starts[0]} ... {starts[-1]}"
        raise BadInput(f"{file}: starts.npy: found {found}, expected 0 ... {len(log.rewards)}, the number of rewards")
    if (wrong := np.diff(starts) < 1).any():
        row = int(np.argmax(wrong)) + 1
        raise Place(file, 0).fault(row, "starts", int(starts[row]), "a rising value: no episode is empty")


def _shapes(log: LogArrays) -> dict[str, tuple[int, ...]]:
    """What each array's shape must be."""
    spec, count, episodes = log.spec, len(log.rewards), len(log.starts) - 1
    agents, width = spec.action.agents, spec.action.width
    seen: tuple[int, ...] = (count + episodes, agents) if spec.observation.per_agent else (count + episodes,)
    found = dict.fromkeys(("rewards", "terminated", "truncated", "behaviour", "dt"), (count,))
    return {
        **found,
        "observations": (*seen, spec.observation.size) if spec.observation.kind == "vector" else seen,
        "actions": (count, agents) if spec.action.kind == "discrete" else (count, agents, width),
        "patients": (episodes,),
        "allowed": (count + episodes, agents, width),
    }


def _check_shapes(log: LogArrays, file: str) -> None:
    for name, shape in _shapes(log).items():
        array = getattr(log, name)
        if array is not None and array.shape != shape:
            raise BadInput(f"{file}: {name}.npy: found shape {array.shape}, expected {shape}; write the log again")


def _blocks(count: int, file: str) -> Iterator[tuple[slice, Place]]:
    return ((slice(k, min(k + BLOCK, count)), Place(file, k)) for k in range(0, count, BLOCK))


def _check_rows(log: LogArrays, file: str) -> None:
    spec = log.spec
    width = spec.observation.size if spec.observation.kind == "vector" else 1
    names = list(spec.observation.names) if len(spec.observation.names) == width else ["observations"] * width
    for rows, place in _blocks(len(log.observations), file):
        seen = log.observations[rows].reshape(rows.stop - rows.start, -1)  # (B, n * width)
        if spec.observation.kind == "states":
            columns = ["observations"] * seen.shape[1]
            check.check_discrete(seen, [spec.observation.size] * len(columns), columns, place, "a state")
        else:
            check.check_finite(seen, names * (seen.shape[1] // width), place)
    for rows, place in _blocks(len(log.rewards), file):
        actions = log.actions[rows].reshape(rows.stop - rows.start, -1)
        if spec.action.kind == "discrete":
            check.check_discrete(actions, spec.action.sizes, ["actions"] * actions.shape[1], place)
        elif spec.action.low:
            check.check_continuous(actions, spec.action, ["actions"] * actions.shape[1], place)
        else:
            check.check_finite(actions, ["actions"] * actions.shape[1], place)
        check.check_finite(log.rewards[rows][:, None], ["rewards"], place)
        check.check_durations(log.dt[rows], "dt", place)
        check.check_probabilities(log.behaviour[rows], spec.action.kind == "discrete", "behaviour", place)
        if log.allowed is not None:
            steps = np.arange(rows.start, rows.stop)
            seen_in = steps + np.searchsorted(log.starts, steps, side="right") - 1  # row of each transition
            check.check_allowed(log.allowed[seen_in], actions, ["actions"] * actions.shape[1], place)


def _check_ends(log: LogArrays, file: str) -> None:
    ends = log.terminated | log.truncated
    last = log.starts[1:] - 1
    if not ends[last].all():
        row = int(last[np.argmin(ends[last])])
        raise Place(file, 0).fault(row, "terminated", "neither an end nor a cut", "one at an episode's last transition")
    if int(ends.sum()) != len(last):
        inside = ends.copy()
        inside[last] = False
        raise Place(file, 0).fault(int(np.argmax(inside)), "terminated", "an end", "none before the last transition")
