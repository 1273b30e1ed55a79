"""What a cluster of 10 to 1,000 nodes would do with a run, by simulation, and what holds it up first.

A discrete-event model (bench/cluster_sim.py) of the driver or learners, the rollout actors on their nodes, and the
groups they play, whose lengths are drawn from measured ones. Its numbers are those that bench/scaling.py measured on
one host; each is printed with its source (--calibrate measures anew, --set changes one). First it is held against the
runs that were measured, then the cluster grows, and with it the work of an update: a driver that plays as on one host,
then with each thing that the design has against waiting. What holds up a cluster first is found by taking away one
cost after the other: that whose absence helps the most.

Left out: groups longer than the longest that was measured; contention in the network beyond one's own link (the tree in
which weights spread has all links to itself); Ray's head, which places actors once and is not asked for calls; the slow
first update; imports and layers that a node fetches once; nodes of unequal speed; memory; that two threads of one
Python process share its interpreter, so that updates slow down the handing out of groups; and that a policy which acts
behind learns less from an episode.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refork.envs.forkable import BadInput
from refork.scripts.bench.cluster_costs import Number, Numbers, numbers_of, run_at, runs_of
from refork.scripts.bench.cluster_growth import DESIGNS, Row, row_of
from refork.scripts.bench.cluster_plot import draw
from refork.scripts.bench.cluster_validation import mean_error, validate

MEASURED = Path(__file__).parent / "results" / "scaling.json"
NODES = (10, 30, 100, 300, 1000)


def show_numbers(numbers: Mapping[str, Number], lengths: Sequence[float]) -> None:
    for name, number in sorted(numbers.items()):
        print(f"  {name:20s} {number.value:12.4g}   {number.source}")
    ranked = sorted(lengths)
    print(f"  {len(ranked)} groups: median {ranked[len(ranked) // 2]:.3g} s, longest {ranked[-1]:.3g} s")


def show(row: Row) -> None:
    print(
        f"{row.design:26s} {row.nodes:5d} {row.actors:6d} {row.learners:5d} {row.episodes_per_s:12.1f} "
        f"{row.efficiency:6.0%} {row.idle_actors:8.0%} {row.idle_learners:8.0%}   {row.bottleneck} ({row.gain:+.0%})",
        flush=True,
    )


def scaled(
    numbers: Numbers, lengths: Sequence[float], nodes: Sequence[int], actors_per_node: int, updates: int
) -> list[Row]:
    """Every design on every number of nodes, printed as it is done."""
    print(f"{'':26s} nodes actors learn.   episodes/s  effic.  idle a.  idle l.   first bottleneck (gain without it)")
    rows = []
    for design in DESIGNS:
        for count in nodes:
            layout = design.layout(count, actors_per_node, updates)
            rows.append(row_of(design, layout, numbers, lengths))
            show(rows[-1])
    return rows


def model(measured: Mapping[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """All of it, as JSON values. Raises BadInput for measurements that lack a run, or a number of no name."""
    runs = runs_of(measured, given.work)
    numbers = numbers_of(measured, given.work, dict(given.set))
    base = run_at(runs, actors=1)
    assert base is not None
    lengths = [seconds for update in base.units_s for seconds in update]
    print(f"{given.work}, measured on {measured['cores']} cores at load {measured['load']:.1f}:")
    show_numbers(numbers, lengths)
    compared = validate(runs, numbers, measured["cores"])
    print("held against measured runs, episodes/s:")
    for one in compared:
        fitted = "   (calibrated by it)" if one.fitted else ""
        print(
            f"  {one.label:24s} {one.predicted:9.2f} predicted {one.measured:9.2f} measured {one.error:+7.1%}{fitted}"
        )
    nodes, updates = ((10, 100), 4) if given.quick else (NODES, 10)
    rows = scaled(numbers, lengths, nodes, given.actors_per_node, updates)
    return {
        "work": given.work,
        "quick_measurements": measured["quick"],
        "numbers": {name: vars(number) for name, number in numbers.items()},
        "validation": [{**vars(one), "error": round(one.error, 4)} for one in compared],
        "mean_error": mean_error(compared),
        "rows": [vars(row) for row in rows],
    }


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    return name, float(value)


def _measured(given: argparse.Namespace) -> dict[str, Any]:
    if given.calibrate:
        from refork.scripts.bench.scaling import study

        return study(None, given.quick)
    try:
        found: dict[str, Any] = json.loads(given.measured.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{given.measured}: cannot be read ({error}); bench/scaling.py --out writes it") from error
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="repair", help="repair or chain: what is played")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="what bench/scaling.py --out wrote")
    parser.add_argument("--calibrate", action="store_true", help="measure now, as bench/scaling.py does")
    parser.add_argument("--quick", action="store_true", help="10 and 100 nodes, 4 updates; measures as quickly too")
    parser.add_argument("--actors-per-node", type=int, default=4)
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE", help="one number")
    parser.add_argument("--out", type=Path, default=None, help="file for the result, and for a picture beside it")
    given = parser.parse_args()
    try:
        result = model(_measured(given), given)
    except BadInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")
        draw(result, given.out.with_suffix(".png"))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
