"""The study of off-policy estimators: bias, error and ranking against exact values, and whether failures are marked.

Fixed policies of different worth are estimated from logs of other people's decisions in ICU-Sepsis and the sepsis
causal model, by every estimator, with recorded and with modelled behaviour probabilities. Per log: `bias` and `rmse`
over policies, `spearman` of the ranking, `regret@1` (value lost by choosing the policy that is estimated best, as a
share of what there is to lose), all over whatever number comes out; with `supported` only what is not marked. Then the
share of policies marked, `coverage` of the 95 % intervals, and how many unmarked estimates are off by more than a
quarter of the range of true values.
`selection`: policies planned on a log with more or less caution, chosen from by rules that see the log alone.
Interquartile mean over logs (seeds), bootstrap, 95 %.

    python scripts/bench/ope.py [--quick] [--seeds 5] [--most 10000] [--work DIR] [--out FILE]

Every run is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from refork.scripts.bench import ope_selection
from refork.scripts.bench.kept import kept
from refork.scripts.bench.ope_cases import CASES, run
from refork.trainers.stats import bootstrap, iqm
from scipy.stats import spearmanr

FAR = 0.25
"""Share of the range of true values that an estimate may be off by before it counts as wrong."""
Scores = dict[str, dict[str, list[float]]]
"""By setting/measure and method: low, interquartile mean, high."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two logs of 500 episodes of each simulator")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=10_000, help="episodes of the largest logs")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        given = (2, 500) if args.quick else (args.seeds, args.most)
        result = study(args.work or Path(made), *given)
    line = json.dumps(result, allow_nan=False)
    if args.out:
        args.out.write_text(line + "\n")
    print(line)


def study(work: Path, seeds: int, most: int) -> dict[str, Any]:
    """All cases; `study`, settings, true values and CPU seconds."""
    work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"study": "ope", "seeds": seeds, "true": {}, "cpu_s": 0.0}
    result |= _selection(work, seeds, most)
    settings = [(n, case) for case in CASES for n in case.episodes if n <= most]
    for episodes, case in sorted(settings, key=lambda setting: setting[0]):
        name, runs = f"{case.name}/{episodes}", []
        for seed in range(seeds):
            runs.append(kept(work, f"{name}/{seed}", partial(run, case, episodes, seed)))
            print(f"{name}, log {seed}: {runs[-1]['cpu_s']:.0f} s of CPU", flush=True)
        result |= scores(name, runs)
        result["true"][case.name] = runs[0]["truth"]
        result["cpu_s"] += sum(r["cpu_s"] for r in runs)
        _show(name, result)
    return result


def _selection(work: Path, seeds: int, most: int) -> Scores:
    """Of the policies planned on a log: value of the one that each rule chooses, and the ranking."""
    found: Scores = {}
    for episodes in (size for size in ope_selection.SIZES if size <= most):
        name = f"selection/{episodes}"
        runs = [kept(work, f"{name}/{seed}", partial(ope_selection.run, episodes, seed)) for seed in range(seeds)]
        values, ranks = found.setdefault(f"{name}/value", {}), found.setdefault(f"{name}/spearman", {})
        for rule in ope_selection.RULES:
            own = [(np.array(one["truth"]), np.array(one["found"][rule])) for one in runs]
            values[rule] = _interval([float(truth[said.argmax()]) for truth, said in own])
            ranks[rule] = _interval([float(spearmanr(truth, said).statistic) for truth, said in own])
            print(f"{name:<16} {rule:<42} value {values[rule][1]:.4f}, spearman {ranks[rule][1]:.2f}", flush=True)
        for least, summary in (("best of them", np.max), ("mean of them", np.mean)):
            values[least] = _interval([float(summary(one["truth"])) for one in runs])
    return found


def scores(name: str, runs: Iterable[Mapping[str, Any]]) -> Scores:
    """`NAME/MEASURE` -> method -> [low, interquartile mean, high] over the runs in which it is defined."""
    by: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in runs:
        methods = dict.fromkeys(m for own in one["found"].values() for m in own)
        for method in methods:
            for measure, value in measures(one, method).items():
                if np.isfinite(value):
                    by[f"{name}/{measure}"][method].append(value)
    return {
        measure: {method: _interval(values) for method, values in own.items()} for measure, own in sorted(by.items())
    }


def measures(one: Mapping[str, Any], method: str) -> dict[str, float]:
    """Of one log and method. NaN: not defined."""
    truth, found = one["truth"], {name: own.get(method) for name, own in one["found"].items()}
    known = [name for name, e in found.items() if e and e["value"] is not None]
    good = [name for name in known if found[name]["status"] in ("ok", "by model")]
    span = max(truth.values()) - min(truth.values())
    missing = {"supported": len(good) / len(found)}
    if not known:
        return missing
    errors = np.array([found[name]["value"] - truth[name] for name in known])
    right = [
        found[name]["low"] <= truth[name] <= found[name]["high"] for name in good if found[name]["low"] is not None
    ]
    off = [abs(found[name]["value"] - truth[name]) > FAR * span for name in good]
    bad = [name for name in known if abs(found[name]["value"] - truth[name]) > FAR * span]
    return missing | {
        "bias": float(errors.mean()),
        "rmse": float(np.sqrt((errors**2).mean())),
        "rmse_supported": _rms([found[n]["value"] - truth[n] for n in good]),
        "spearman": _spearman(found, truth, known),
        "spearman_supported": _spearman(found, truth, good),
        "regret@1": _regret(found, truth, known) / span,
        "regret@1_supported": _regret(found, truth, good) / span,
        "coverage": float(np.mean(right)) if right else np.nan,
        "wrong_unmarked": float(np.mean(off)) if off else np.nan,
        "wrong_marked": float(np.mean([name not in good for name in bad])) if bad else np.nan,
    }


def _rms(errors: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else np.nan


def _spearman(found: Mapping[str, Any], truth: Mapping[str, float], names: list[str]) -> float:
    values = [found[name]["value"] for name in names]
    if len(names) < 3 or len(set(values)) == 1:
        return np.nan
    return float(spearmanr(values, [truth[name] for name in names]).statistic)


def _regret(found: Mapping[str, Any], truth: Mapping[str, float], names: list[str]) -> float:
    """Of the best policy's value, what is lost by taking the one that is estimated best among `names`."""
    if not names:
        return np.nan
    return max(truth.values()) - truth[max(names, key=lambda name: found[name]["value"])]


def _interval(values: list[float]) -> list[float]:
    if max(map(abs, values)) > 1e15:  # beyond what a mean of them can say
        return [min(values), float(np.median(values)), max(values)]
    found = bootstrap(values, statistic=iqm, resamples=2000)
    return [found.low, found.estimate, found.high]


def _show(name: str, result: Mapping[str, Any]) -> None:
    shown = ("rmse", "bias", "spearman", "regret@1", "supported", "coverage", "wrong_unmarked")
    print(f"{name:<28}" + "".join(f"{measure:>15}" for measure in shown))
    methods = dict.fromkeys(m for measure in shown for m in result.get(f"{name}/{measure}", {}))
    for method in methods:
        cells = [result.get(f"{name}/{measure}", {}).get(method) for measure in shown]
        print(f"{method:<28}" + "".join(f"{'-' if c is None else format(c[1], '.3g'):>15}" for c in cells), flush=True)


if __name__ == "__main__":
    main()
