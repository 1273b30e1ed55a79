"""The synthetic cohort: its table is its log, treatment matters, and nothing in it depends on how it is drawn."""

from pathlib import Path

import numpy as np
import pytest
from refork.envs.clinical.cohort import BLOCK, COLUMNS, SyntheticCohort, simulate, table_schema
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Limit
from refork.envs.simulators import open_simulator
from refork.replay.formats.cohort_writer import write_table
from refork.replay.formats.kinds import to_native
from refork.replay.support import cost_log
from refork.replay.transitions import load, of

ARRAYS = ("observations", "actions", "rewards", "terminated", "truncated", "starts", "patients", "behaviour", "dt")


@pytest.mark.parametrize("channels", ["joint", "factored"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_table_read_as_its_schema_says_is_the_log(tmp_path: Path, suffix: str, channels: str) -> None:
    simulator = open_simulator("refork/SyntheticCohort-v0", {"channels": channels})
    assert isinstance(simulator, SyntheticCohort)
    path = tmp_path / f"cohort{suffix}"
    write_table(simulator.table("clinician", 60, 3), path)
    (tmp_path / "cohort.schema.toml").write_text(table_schema(channels == "joint"))
    to_native(path, None, tmp_path / "log")
    found, log = load(tmp_path / "log"), simulator.log("clinician", 60, 3)
    assert found.spec == log.spec
    for name in ARRAYS:
        assert getattr(found, name).dtype == getattr(log, name).dtype, name
        assert np.array_equal(getattr(found, name), getattr(log, name)), name


def test_the_columns_are_the_published_ones_in_their_units() -> None:
    log = SyntheticCohort().log("clinician", 400, 0)
    assert len(COLUMNS) == 48
    seen = dict(zip(COLUMNS, log.observations.T, strict=True))
    for name, low, high in (
        ("o:SpO2", 60, 100),
        ("o:urine_ml_kg_h", 0, 5),
        ("o:MeanBP", 20, 150),
        ("o:SOFA", 0, 24),
        ("o:GCS", 3, 15),
        ("o:Arterial_pH", 6.8, 7.7),
        ("o:age", 18, 95),
    ):
        assert low <= seen[name].min() <= seen[name].max() <= high, name
    assert 0 < (seen["o:SpO2"] < 92).mean() < 0.2
    assert 0 < (seen["o:urine_ml_kg_h"] < 0.5).mean() < 0.2
    lengths = np.diff(log.starts)
    assert lengths.min() >= 1
    assert lengths.max() == 20
    assert len(np.unique(lengths)) > 10
    assert set(np.unique(log.dt)) == {1, 2, 3}


def test_treatment_matters_and_clinicians_lose_a_fifth_of_their_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refork.envs.clinical.cohort.TRUTH_PATIENTS", 3 * BLOCK)
    simulator = SyntheticCohort()
    worth = {name: simulator.truth(simulator.policy(name)).value for name in simulator.behaviours}
    mortality = (1 - worth["clinician"]) / 2
    assert 0.2 < mortality < 0.25
    assert worth["protocol"] > worth["clinician"] + 0.08
    assert worth["clinician"] > worth["never_treat"] + 0.3
    assert worth["never_treat"] > worth["random"] + 0.3


def test_the_truth_agrees_with_a_log_of_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refork.envs.clinical.cohort.TRUTH_PATIENTS", 3 * BLOCK)
    simulator = SyntheticCohort()
    truth = simulator.truth(simulator.policy("clinician"))
    log = simulator.log("clinician", 4000, 5)
    returns = np.add.reduceat(log.rewards, log.starts[:-1])
    assert not truth.exact
    assert truth.low < truth.value < truth.high
    assert abs(returns.mean() - truth.value) < 4 * returns.std() / 2400**0.5  # both are samples


def test_true_violations_are_those_of_a_log_of_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refork.envs.clinical.cohort.TRUTH_PATIENTS", 3 * BLOCK)
    simulator = SyntheticCohort()
    limits = [Limit("SpO2", "below", 92.0), Limit("o:MeanBP", "above", 1e9), Limit("SpO2", "above", -1.0)]
    spo2, never, always = simulator.violating_steps(simulator.policy("clinician"), limits)
    log = of(simulator.log("clinician", 4000, 5))
    counts = cost_log(log, limits[0]).returns(1.0)
    assert abs(counts.mean() - spo2.value) < 4 * counts.std() / 2400**0.5
    assert spo2.low < spo2.value < spo2.high
    assert never.value == 0
    assert abs(always.value - log.lengths.mean()) < 4 * log.lengths.std() / 2400**0.5


def test_a_limit_on_no_column_is_refused() -> None:
    simulator = SyntheticCohort()
    with pytest.raises(BadInput, match="column 'SpO3' is not in"):
        simulator.violating_steps(simulator.policy("clinician"), [Limit("SpO3", "below", 92.0)])


def test_logged_probabilities_are_those_of_the_policy() -> None:
    for channels in ("joint", "factored"):
        simulator = SyntheticCohort(channels)  # type: ignore[arg-type]
        log = simulator.log("clinician", 100, 1)
        rows = np.arange(len(log.rewards)) + np.repeat(np.arange(100), np.diff(log.starts))
        chances = simulator.policy("clinician")(log.observations[rows], None)
        assert np.allclose(chances.sum(-1), 1)
        taken = np.take_along_axis(chances, log.actions[..., None], -1)[..., 0].prod(-1)
        assert np.allclose(taken, log.behaviour, rtol=1e-6)
        assert log.behaviour.min() >= (0.05 / 5) ** 2 * 0.999


def test_patients_do_not_depend_on_how_many_are_drawn() -> None:
    simulator = SyntheticCohort()
    few = simulator.log("clinician", BLOCK + 5, 2)
    longer = simulator.log("clinician", BLOCK + 600, 2)
    first = int(few.starts[BLOCK])
    assert np.array_equal(few.actions[:first], longer.actions[:first])


def test_policies_are_compared_on_the_same_patients() -> None:
    simulator = SyntheticCohort()
    one, other = (simulate(50, simulator.policy(name), 7, 0) for name in ("random", "never_treat"))
    assert np.array_equal(one.seen[:, 0], other.seen[:, 0], equal_nan=True)
    assert not np.array_equal(one.doses, other.doses)


def test_wrong_names_are_refused() -> None:
    with pytest.raises(BadInput, match="no behaviour 'x' of the synthetic cohort; there are: clinician"):
        SyntheticCohort().log("x", 1, 0)
    with pytest.raises(BadInput, match=r"channels: .*'joint' or 'factored'"):
        open_simulator("refork/SyntheticCohort-v0", {"channels": "both"})
