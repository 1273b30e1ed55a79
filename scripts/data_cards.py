"""Makes and shows data cards for `refork data`."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from refork.envs.forkable import BadInput, InfraFailure
from refork.envs.home import check_writable
from refork.replay.data_card import SPLIT, DataCard, data_card
from refork.replay.formats.kinds import check_new, native_of
from refork.replay.transitions import load, notes_of
from rich.console import Console
from rich.table import Table

SHOWN = 16
"""Features in the printed card."""


def card_of(file: Path, schema: Path | None) -> tuple[DataCard, frozenset[str]]:
    """The card, and the names of the patients. Raises BadInput at the file's first fault."""
    with tempfile.TemporaryDirectory() as kept:
        folder = native_of(file, schema, Path(kept) / "log")
        log = load(folder)
        names = log.patient_names or tuple(str(k) for k in log.patients.tolist())
        return data_card(log, str(file), notes_of(folder)), frozenset(names)


def patients_in_two(owners: Sequence[tuple[str, frozenset[str]]]) -> None:
    """Raises BadInput when two files share a patient: what is learnt from one is then judged on itself."""
    for k, (first, patients) in enumerate(owners):
        for second, others in owners[k + 1 :]:
            if both := sorted(patients & others):
                raise BadInput(
                    f"{second}: {len(both)} patients are also in {first} (e.g. {both[0]!r}); split files by patient"
                )


@contextmanager
def new_log(out: Path, kind: str) -> Iterator[None]:
    """`out` is made within, in a folder that is there; when that fails, nothing of it is left.

    Raises BadInput when it cannot be, InfraFailure: disk full.
    """
    check_new(out, kind)
    check_writable(out.absolute().parent, "choose another OUT")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _removed_on_failure(out):
            yield
    except OSError as error:
        raise InfraFailure(f"{out}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _removed_on_failure(out: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if out.is_dir():
            shutil.rmtree(out, ignore_errors=True)
        else:
            out.unlink(missing_ok=True)
        raise


def plain(text: str) -> Any:
    """A value of an option: JSON where it is, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def show(card: DataCard) -> None:
    """Print a card."""
    console = Console(highlight=False)
    table = Table(title=f"Data card of {card.source}", title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _lines(card):
        table.add_row(name, text)
    console.print(table)
    console.print(_actions(card))
    if "states" not in card.features:
        console.print(_features(card))
    for warning in card.warnings:
        console.print(f"warning: {warning}", markup=False, soft_wrap=True)


def _lines(card: DataCard) -> list[tuple[str, str]]:
    ends, dt, rewards = card.ends, card.dt, card.rewards
    return [
        ("environment", card.env or "unknown (a log alone)"),
        ("patients", f"{card.patients:,}"),
        ("episodes", f"{card.episodes:,}"),
        ("transitions", f"{card.transitions:,}"),
        ("lengths", _quantiles(card.lengths)),
        ("ends", ", ".join(f"{count:,} {name}" for name, count in ends.items() if count or "both" not in name)),
        ("time step", f"in units of {dt['unit']}: {_quantiles(dt)}; {dt['other than 1']:.1%} other than 1"),
        ("reward", f"{rewards['text']}; gamma {rewards['gamma']:g}"),
        ("", f"{rewards['min']:g} to {rewards['max']:g}, {rewards['other than 0']:.1%} other than 0"),
        ("returns", f"mean {rewards['mean return']:.4f}, sd {rewards['sd of returns']:.4f} (undiscounted)"),
        ("behaviour", f"probability known for {card.behaviour_known:.1%} of the decisions"),
        ("features", _count(card.features)),
        ("missing", _missing(card)),
        ("default split", _split(card.split)),
        ("cohort hash", card.content[:16]),
    ]


def _quantiles(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {values[name]:g}" for name in ("min", "p25", "median", "p75", "max"))


def _split(split: Mapping[str, int]) -> str:
    shares = ", ".join(f"{share:g}" for share in SPLIT)
    return f"{', '.join(f'{count:,} {name}' for name, count in split.items())} (episodes; {shares} by patient)"


def _count(features: Mapping[str, Mapping[str, float]]) -> str:
    if "states" in features:
        return f"{features['states']['seen']:g} of {features['states']['declared']:g} states seen"
    return str(len(features))


def _missing(card: DataCard) -> str:
    if not card.missing:
        return "none"
    worst = sorted(card.missing.items(), key=lambda item: -item[1])
    total = sum(card.missing.values())
    shown = ", ".join(f"{name} {count:,}" for name, count in worst[:5])
    return f"{total:,} values in {len(worst)} columns ({card.missing_policy}): {shown}"


def _features(card: DataCard) -> Table:
    """All, or the `SHOWN` with the farthest extremes."""
    masks = "m:" if card.missing_policy == "mask" else None
    features = {name: seen for name, seen in card.features.items() if masks is None or not name.startswith(masks)}
    shown = sorted(features, key=lambda name: -_extreme(features[name]))[:SHOWN] if len(features) > SHOWN else features
    title = "Features"
    if len(shown) < len(features):
        title += f": {SHOWN} of {len(features)}, farthest extremes first (all: --out FILE)"
    table = Table(title=title, title_justify="left")
    table.add_column("feature", overflow="fold")
    if card.units:
        table.add_column("unit", overflow="fold")
    for name in ("min", "median", "max", "missing"):
        table.add_column(name, justify="right")
    for name in shown:
        seen = features[name]
        missing = f"{seen['missing']:.1%}" if "missing" in seen else ""
        unit = [card.units.get(name, "")] if card.units else []
        table.add_row(name, *unit, *(f"{seen[key]:.4g}" for key in ("min", "median", "max")), missing)
    return table


def _extreme(seen: Mapping[str, float]) -> float:
    """How far the farthest value lies from the median, in widths of the middle half (where that has none: in sd)."""
    width = seen["p75"] - seen["p25"] or seen["sd"]
    return max(seen["max"] - seen["median"], seen["median"] - seen["min"]) / width if width else 0.0


def _actions(card: DataCard) -> Table:
    table = Table(title="Actions", title_justify="left")
    table.add_column("decision maker")
    table.add_column("how often each was taken (continuous: quantiles by dimension)", overflow="fold")
    for name, values in card.actions.items():
        cells = [_quantiles(v) if isinstance(v, Mapping) else f"{k}: {v:,}" for k, v in enumerate(values)]
        table.add_row(name, "   ".join(cells))
    return table
