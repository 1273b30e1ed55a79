"""A schema to begin with: filled with a table's own columns, open where only the owner of the table knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from refork.replay.formats.schema import OPEN

GUESSED = "guessed: confirm;"
EPISODE = ("traj", "icustayid", "episode", "episode_id", "eps_id", "stay", "stay_id")
PATIENT = ("patient", "patient_id", "subject_id")
STEP, TIME = ("step", "bloc", "t"), ("time", "hour", "hours", "charttime")
REWARD = ("reward", "rewards")
TERMINATED, TRUNCATED = ("terminated", "terminal", "done", "died", "dead"), ("truncated", "censored")


@dataclass(frozen=True)
class FirstRows:
    """The beginning of a table."""

    count: int
    whole: Mapping[str, int]
    """Columns that hold nothing but whole numbers from 0 on, few of them: the largest."""


def draft(path: Path, columns: Sequence[str], first: FirstRows) -> str:
    """TOML, with `?` for every decision. What is taken from names of columns is marked as guessed."""
    return "\n".join(
        (
            f'# A draft for {path.name}: fill in every "?", confirm what is guessed, uncomment what else you need.',
            *wrap(f"Columns: {', '.join(columns)}", 110, initial_indent="# ", subsequent_indent="#   "),
            _unused("env", "refork/SepsisSCM-v0", "the simulator it came from; left out: none"),
            "",
            *_columns(columns),
            *_action(columns, first),
            *_rest(columns),
        )
    )


def _columns(columns: Sequence[str]) -> list[str]:
    step, time = _one(columns, STEP), _one(columns, TIME)
    timed = ("time", time, "a time, rising") if time and not step else ("step", step, "a whole number, rising")
    actions = _named(columns, "a:")
    seen = ["o:*"] if _named(columns, "o:") else []
    probability = _one(columns, ("behaviour_probability",))
    known = _line("behaviour_probability", probability, "that of the logged action under who acted; empty: unknown")
    return [
        "[columns]",
        _line("episode", _one(columns, EPISODE), "which stay a row belongs to"),
        _line("patient", _one(columns, PATIENT), "whose it is; the same as episode if every stay is another patient's"),
        _line(timed[0], timed[1], f"{timed[2]} within an episode; one of step and time"),
        _line("observations", seen, "what is known at a decision, nothing of what came of it; * is any text"),
        _line("actions", actions, "what was decided"),
        _line("reward", _only(_named(columns, "r:")) or _one(columns, REWARD), "of the decision in its row"),
        _unused("terminated", _one(columns, TERMINATED) or "died", 'with end = "column": 1 where an episode ended'),
        _unused("truncated", _one(columns, TRUNCATED) or "cut", 'with end = "column": 1 where it was cut'),
        known if probability else f"# {known}, or behaviour_log_probability",
        _unused("allowed", ["ok:*"], "0 or 1 for every action of every decision maker; left out: all are allowed"),
        "",
        "# [observation]",
        _unused("kind", "states", "the one observation column numbers a state; left out: each holds a measurement"),
        _unused("size", 750, "how many states there are"),
        f'# units = {{{json.dumps(_example(columns))} = "mmol/L"}}  # of measurements, for the data card',
    ]


def _action(columns: Sequence[str], first: FirstRows) -> list[str]:
    actions = _named(columns, "a:")
    taken = {_one(columns, names) for names in (EPISODE, PATIENT, STEP, TIME, REWARD, TERMINATED, TRUNCATED)}
    others = [name for name in columns if name not in taken and not name.startswith(("o:", "r:"))]
    found = {name: first.whole[name] for name in actions or others if name in first.whole}
    ranges = ", ".join(f"{name} 0 ... {most}" for name, most in found.items())
    said = [f"# whole numbers in the first {first.count:,} rows: {ranges}"] if found else []
    return [
        "",
        "[action]",
        _line("kind", "", "discrete (then counts), or continuous (then low and high, no counts)"),
        _line("counts", [OPEN] * max(1, len(actions)), "actions of each column, 0 ... count - 1, occurring or not"),
        *said,
        _unused("joint", True, "one decision maker decides all columns; left out: one each"),
        _unused("low", [0.0], "least of each dose"),
        _unused("high", [4.0], "most of each dose"),
        _unused("agents", 2, "decision makers who share the continuous columns"),
        _unused("names", ["fluid", "vasopressor"], "of the decision makers; left out: the columns"),
    ]


def _rest(columns: Sequence[str]) -> list[str]:
    return [
        "",
        "[episode]",
        _line("end", "", "the last row is: terminated (a true end), truncated (the record stops), column (says which)"),
        _unused("last_row", "observation", "it holds no decision, only what the last one led to"),
        _unused("horizon", 20, "steps after which an episode is cut; left out: no limit"),
        "",
        "[time]",
        _line("unit", "", 'what one unit of time is, e.g. "4 h"'),
        _unused("per_unit", 4.0, "how much of the step or time column is one unit"),
        "",
        "[reward]",
        _line("text", "", "what it is, in words and with its unit"),
        _unused("gamma", 0.99, "discount per unit of time; left out: 1"),
        "",
        "# [missing]  # left out: an empty observation is refused",
        _unused("policy", "forward_fill", "the last value of the episode; mask: that, and a column that says so"),
        "# [missing.first]  # where an episode has none yet",
        f"# {json.dumps(_example(columns))} = 2.0",
    ]


def _line(key: str, value: str | list[str], help_text: str) -> str:
    """A line that must be filled in, or confirmed."""
    filled = value if value else OPEN if isinstance(value, str) else [OPEN]
    guessed = "" if filled in (OPEN, [OPEN] * len(filled)) else f"{GUESSED} "
    return f"{key} = {json.dumps(filled, ensure_ascii=False)}  # {guessed}{help_text}"


def _unused(key: str, value: object, help_text: str) -> str:
    return f"# {key} = {json.dumps(value, ensure_ascii=False)}  # {help_text}"


def _example(columns: Iterable[str]) -> str:
    return ["lactate", *_named(columns, "o:")][-1]


def _named(columns: Iterable[str], prefix: str) -> list[str]:
    return [name for name in columns if name.startswith(prefix)]


def _one(columns: Iterable[str], names: Sequence[str]) -> str:
    """The column of the most telling of these names; "": none."""
    found = [name for name in columns if name.lower() in names]
    return min(found, key=lambda name: names.index(name.lower()), default="")


def _only(found: Sequence[str]) -> str:
    return found[0] if len(found) == 1 else ""
