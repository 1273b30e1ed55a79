"""What `refork evaluate` says of policies learnt from logs."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find
from refork.cluster.evaluating import evaluate_checkpoint
from refork.cluster.family import Contest, open_family
from refork.cluster.log_doses import channels
from refork.cluster.log_family import LogFamily
from refork.cluster.log_ranking import ranking_lines
from refork.cluster.log_report import Judged, LogReport
from refork.cluster.log_source import LogSource, check_same_log
from refork.cluster.log_tables import support_of
from refork.cluster.log_words import policies
from refork.cluster.run_folder import create
from refork.cluster.training import Silent, build_trainer, prepare, train
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.forkable import BadInput
from refork.replay.ope.estimate import Estimate, observed_return
from refork.replay.support import SAFETY, cost_log
from refork.replay.transitions import save
from refork.trainers import fqe
from refork.trainers.config import JobConfig, TrackingConfig
from rich.console import Console

from tests.trainers.logs import log_for


def job(env: dict[str, Any], kind: str = "cql", seeds: int = 2) -> JobConfig:
    return JobConfig.model_validate(
        {
            "env": env,
            "agent": {"kind": "q_networks", "options": {"hidden": [8]}},
            "trainer": {"kind": kind, "seeds": seeds, "steps_per_update": 4, "gamma": 1.0},
        }
    )


def judged(made: JobConfig, split: str = "held_out", baselines: bool = True) -> LogReport:
    torch.set_num_threads(1)
    family = open_family(made)
    assert isinstance(family, LogFamily)
    weights = build_trainer(made, family.feature_names).weights()
    contest = Contest(split, baselines, 0, weights, weights, [], None, lambda _: None)  # type: ignore[arg-type]
    return family.judge(contest)


@pytest.fixture
def tables_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fqe, "METHODS", ("table", "linear"))
    monkeypatch.setattr("refork.cluster.log_judging.RESAMPLES", 10)
    return None


SEPSIS = {"id": "refork/IcuSepsis-v0", "options": {"episodes": 200}}


@pytest.mark.usefixtures("tables_only")
def test_who_acted_has_a_true_value_also_when_the_log_hides_what_they_saw() -> None:
    options = {"behaviour": "confounded", "episodes": 100, "simulator": {"strength": 5.0}}
    report = judged(job({"id": "refork/SepsisSCM-v0", "options": options}, seeds=1), baselines=False)
    (logged,) = [row for row in report.judged if row.name == "logged"]
    assert logged.truth == SepsisScm(strength=5.0).behaviour_truth("confounded")


@pytest.mark.usefixtures("tables_only")
def test_policies_of_a_simulator_stand_beside_their_true_values(tmp_path: Path) -> None:
    report = judged(job(SEPSIS))
    rows = {(row.name, row.seed): row for row in report.judged}
    assert {("trained, all seeds", None), ("trained", 1), ("logged", None), ("BC", None), ("never-treat", None)} < set(
        rows
    )
    assert rows["optimal", None].truth is not None
    assert rows["optimal", None].truth.value == pytest.approx(0.87514, abs=1e-5)
    assert rows["logged", None].truth is not None
    assert rows["logged", None].truth.value == pytest.approx(0.78184, abs=1e-5)
    said = {e.estimator: e for e in rows["optimal", None].estimates}
    assert said["WIS"].status == said["WDR table"].status == "unsupported"
    assert said["FQE table"].status == "by model"
    together = {e.estimator: e for e in rows["trained, all seeds", None].estimates}["FQE table"]
    each = [{e.estimator: e for e in rows["trained", s].estimates}["FQE table"].value for s in (0, 1)]
    assert together.value == pytest.approx(np.mean(each))  # type: ignore[arg-type]
    assert rows["trained, all seeds", None].by_seed["FQE table"] == pytest.approx(each)
    orders = report.about()["rankings"]["FQE table"]
    assert "optimal" in orders["with those by model"]
    assert "optimal" not in orders["supported"]
    (line,) = [note for note in report.notes() if note.startswith("ranking")]
    assert line == "ranking: none, the log supports fewer than two policies; orders by a model alone are in the JSON"
    written = json.loads(json.dumps({**report.about(), "results": report.to_json()}, allow_nan=False))
    assert written["gamma"] == 1.0
    assert written["results"][3]["fqe"]["table"]["held_out"] is True
    assert [path.name for path in report.plots(tmp_path)] == [
        "estimates-held_out.png",
        "calibration-held_out.png",
        "doses-held_out.png",
    ]
    _fits(report, 100)


def _fits(report: LogReport, width: int) -> None:
    """Nothing is cut or broken at that width."""
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in report.tables():
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert "trained, all seeds" in text


@pytest.mark.usefixtures("tables_only")
def test_the_trained_policy_comes_first_also_when_it_is_one_seed() -> None:
    report = judged(job(SEPSIS, seeds=1))
    assert [row.label for row in policies(report)][:3] == ["trained 0", "logged", "BC"]
    values, support = report.summary()
    assert values.startswith("value: trained 0: no estimate that the log supports; logged: ")
    assert values.endswith("logged 0.782")
    assert support.startswith("support: the log does not support an estimate of trained 0: ")
    assert report.about()["summary"] == [values, support]


@pytest.mark.usefixtures("tables_only")
def test_one_ranking_is_printed_of_what_is_supported() -> None:
    report = judged(job(SEPSIS, seeds=1), baselines=False)
    draws = np.linspace(0.4, 0.6, 100)

    def row(name: str, *found: Estimate) -> Judged:
        return Judged(name, None, None, found, {}, None, {}, {}, {})

    def said(estimator: str, value: float) -> Estimate:
        return Estimate(estimator, "", "ok", value, value - 0.1, value + 0.1, resampled=draws + value)

    rows = [
        row("trained", Estimate("FQE table", "", "by model", 9.0), Estimate("WDR table", "", "unsupported", 8.0)),
        report.judged[1],
        row("BC", said("WIS", 0.5), said("WDR table", 0.6), Estimate("FQE table", "", "ok", 0.5)),
        row("expert", said("WIS", 0.5), said("WDR table", 0.7)),
        row("protocol", Estimate("WDR table", "", "ok", 0.5, 0.4, 0.6, resampled=draws[::-1] + 0.55)),
    ]
    (line,) = ranking_lines(replace(report, judged=rows))
    assert line == (
        "ranking by WDR table: expert > BC ~ protocol (~: the interval of their difference holds 0); "
        "not ranked, for want of support: trained"
    )


@pytest.mark.usefixtures("tables_only")
def test_limits_are_kept_or_not_only_where_the_log_supports_an_estimate() -> None:
    report = judged(job(SEPSIS, seeds=1), baselines=False)
    draws = np.linspace(0.4, 0.6, 100)
    limits = ("a < 1", "b < 1", "c < 1")
    logged = {limit: Estimate("observed return", "", "ok", 0.5, 0.4, 0.6, resampled=draws) for limit in limits}
    trained = {
        "a < 1": Estimate("WIS", "", "ok", 0.7, 0.6, 0.8, resampled=draws + 0.2),
        "b < 1": Estimate("WIS", "", "ok", 0.3, 0.2, 0.4, resampled=draws - 0.2),
        "c < 1": Estimate("FQE table", "", "by model", 0.1),
    }
    rows = [replace(row, violations=v) for row, v in zip(report.judged, (trained, logged), strict=True)]
    beyond = "steps an episode beyond it, logged 0.500 [0.400, 0.600])"
    assert replace(report, judged=rows).summary()[2] == (
        f"safety limits: a < 1 violated more than by who acted (0.700 [0.600, 0.800] {beyond}; "
        f"b < 1 kept better than by who acted (0.300 [0.200, 0.400] {beyond}; "
        "c < 1 - the log cannot tell whether it is kept"
    )


@pytest.mark.usefixtures("tables_only")
def test_of_all_seeds_the_worst_stands_for_the_support() -> None:
    report = judged(job(SEPSIS, seeds=3), baselines=False)
    together, _logged, *seeds = report.judged
    least = min(support.ess for row in seeds if (support := support_of(row)) is not None)
    assert support_of(together).ess == least  # type: ignore[union-attr]


@pytest.mark.usefixtures("tables_only")
def test_without_matplotlib_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = judged(job(SEPSIS, seeds=1), baselines=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BadInput, match="need the package matplotlib: pip install matplotlib"):
        report.plots(tmp_path)


def test_a_method_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fqe.evaluate

    def evaluate(*args: Any, **options: Any) -> list[fqe.FQE]:
        if options.get("method") == "linear":
            raise FloatingPointError("singular")
        return whole(*args, **options)

    monkeypatch.setattr(fqe, "METHODS", ("table", "linear"))
    monkeypatch.setattr(fqe, "evaluate", evaluate)
    report = judged(job(SEPSIS, seeds=1), baselines=False)
    said = {e.estimator: e for e in report.judged[0].estimates}
    assert said["FQE linear"].status == "failed"
    assert said["FQE linear"].note == "singular"
    assert said["FQE table"].value is not None


def test_a_failure_in_training_is_said_and_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = job(SEPSIS)
    family = open_family(made)
    weights = build_trainer(made, family.feature_names).weights()
    evaluator = family.evaluator(None)  # type: ignore[arg-type]
    found = evaluator.evaluate(weights, 3)
    assert 0 < found["fqe"] < 1
    assert 0.6 < found["true_value"] < 0.9
    monkeypatch.setattr(fqe, "evaluate", lambda *_, **__: 1 / 0)
    assert set(evaluator.evaluate(weights, 3)) == {"true_value"}
    assert "update 3: FQE failed, training goes on: division by zero" in caplog.text


def _small(actions: str, behaviour: np.ndarray | None, folder: Path) -> dict[str, Any]:
    log = log_for(actions, episodes=40)
    save(log if behaviour is None else replace(log, behaviour=behaviour), folder)
    return {"id": "refork/Logs-v0", "tasks": str(folder), "options": {"fractions": [0.5, 0.25, 0.25]}}


@pytest.mark.usefixtures("tables_only")
def test_1_in_place_of_unknown_is_refused_and_modelled_instead(tmp_path: Path) -> None:
    report = judged(job(_small("discrete", np.ones(240, np.float32), tmp_path / "log"), seeds=1))
    assert report.notes()[0].startswith("recorded behaviour probabilities are refused: ")
    assert report.part.source == "a cross-fitted network"
    assert report.part.known == 0


@pytest.mark.parametrize("actions", ["continuous", "factored discrete"])
def test_what_is_not_defined_for_a_log_is_said(actions: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fqe, "METHODS", ("linear",))
    report = judged(job(_small(actions, None, tmp_path / "log"), kind="bc", seeds=1))
    said = {e.estimator: e for e in report.judged[0].estimates}
    if actions == "continuous":
        assert said["WIS"].status == said["FQE linear"].status == "not defined"
        assert said["FQE linear"].note == "continuous actions"
    else:
        assert said["WIS"].support is not None
        assert said["FQE linear"].value is not None
    assert report.judged[0].truth is None
    titles = [table.title for table in report.tables() if table.title]
    assert titles[0] == "What the log supports best"
    assert any(title.startswith("Models of Q") for title in titles) == (actions != "continuous")
    assert not any(
        list(column.cells) == ["-"] * table.row_count for table in report.tables() for column in table.columns
    )
    drawn = report.plots(tmp_path)
    assert [path.name.split("-")[0] for path in drawn] == (
        ["estimates", "doses"] if actions == "continuous" else ["estimates", "calibration", "doses"]
    )


@pytest.mark.usefixtures("tables_only")
def test_a_log_whose_only_known_value_is_0_is_drawn(tmp_path: Path) -> None:
    """Nothing was ever paid, and no estimate of a policy stands beside the observed return."""
    report = judged(job(_small("continuous", None, tmp_path / "log"), kind="bc", seeds=1))
    paid_nothing = replace(observed_return(report.part.log, 1.0), value=0.0, low=0.0, high=0.0)
    nothing = replace(report, judged=[replace(report.judged[0], estimates=(paid_nothing,)), *report.judged[1:]])
    assert nothing.plots(tmp_path)[0].is_file()


def test_where_fqe_of_violations_fails_the_rest_is_still_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_for("discrete", episodes=40)
    seen = replace(log.spec.observation, names=("heart rate", "SpO2", "age"))
    save(replace(log, spec=replace(log.spec, observation=seen)), tmp_path / "log")
    monkeypatch.setattr(fqe, "evaluate", lambda *_, **__: 1 / 0)
    report = judged(job({"id": "refork/Logs-v0", "tasks": str(tmp_path / "log")}, seeds=1), baselines=False)
    trained, logged = report.judged
    assert list(logged.violations) == list(trained.violations) == ["SpO2 < 92"]
    assert trained.violations["SpO2 < 92"].status == "failed"
    assert trained.violations["SpO2 < 92"].note == "division by zero"
    assert logged.violations["SpO2 < 92"].value == cost_log(report.part.log, SAFETY[0]).returns(1.0).mean()
    assert "FQE tree failed: division by zero" in report.notes()
    assert report.summary()[2] == "safety limits: SpO2 < 92 - the log cannot tell whether it is kept"
    assert {e.estimator: e.status for e in trained.estimates}["WIS"] == "unsupported"
    assert any("failed" in list(table.columns[-1].cells) for table in report.tables())


def test_a_run_is_not_judged_on_a_log_of_other_content(tmp_path: Path) -> None:
    log = log_for("discrete", episodes=40)
    save(log, tmp_path / "log")
    made = job({"id": "refork/Logs-v0", "tasks": str(tmp_path / "log")}, kind="bc", seeds=1).model_copy(
        update={"runs": tmp_path / "runs", "tracking": TrackingConfig(wandb="off")}
    )
    made = made.model_copy(update={"trainer": made.trainer.model_copy(update={"updates": 1})})
    run = create(made)
    train(prepare(made), run, Silent())
    loaded = read(find(run.path))
    check_same_log(LogSource(made.env), loaded.path)
    rewards = np.array(log.rewards)
    rewards[7] += 0.5
    save(replace(log, rewards=rewards), tmp_path / "log")
    with pytest.raises(BadInput, match=r"log\.json: the run began with a log of other content; restore that log"):
        evaluate_checkpoint(loaded, made, "held_out", False, lambda _: None)


def test_a_split_without_patients_is_bad_input() -> None:
    with pytest.raises(BadInput, match=r"no held_out patients.*fractions"):
        judged(job({**SEPSIS, "options": {"episodes": 50, "fractions": [0.8, 0.2, 0.0]}}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"episode": 50}, r"^env\.options\.episode: no such option; did you mean episodes\?$"),
        ({"fractions": [0.0, 0.5, 0.5]}, r"^env\.options\.fractions: train, validation, held_out must be >= 0"),
        ({"episodes": "many"}, r"^env\.options\.episodes: .*, got 'many'$"),
    ],
)
def test_options_of_a_log_that_cannot_be_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        _ = open_family(job({"id": "refork/IcuSepsis-v0", "options": options})).feature_names


def test_channels_are_declared_or_known_never_guessed() -> None:
    assert channels(log_for("discrete").spec) is None
    assert channels(log_for("continuous").spec) is None
    found = channels(log_for("factored discrete").spec)
    assert found is not None
    assert found.sizes == (4, 4, 4)
    assert found.levels[:, 5].tolist() == [0, 1, 1]
