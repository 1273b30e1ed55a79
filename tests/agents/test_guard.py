"""The guarded policy: what it lets pass, what it vetoes and why, what it falls back to and what it logs."""

import doctest

import numpy as np
import pytest
from refork.agents import guard as guard_module
from refork.agents.density import fit_density
from refork.agents.guard import GuardedPolicy, Veto
from refork.agents.guard_checks import InSupport, NotRare, Rule
from refork.agents.guarded_weights import conditional, guarded_policy
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, Limit, LogSpec, ObservationSpec

STATES = LogSpec("", ObservationSpec("states", 3, ("MAP",)), ActionSpec("discrete", (3,), ("dose",)), "survival")
VECTORS = LogSpec("", ObservationSpec("vector", 2, ("o:SpO2", "o:MAP")), ActionSpec("discrete", (3,)), "survival")
DOSES = LogSpec(
    "",
    ObservationSpec("vector", 2, ("o:SpO2", "o:MAP")),
    ActionSpec("continuous", (1,), ("fluid",), (0.0,), (1.0,)),
    "survival",
)
FEATURES = np.array([[60.0], [95.0], [70.0]], np.float32)


def _always(action: int) -> Act:
    return lambda seen, allowed: np.eye(3)[np.full(len(seen), action)][:, None]


def _clinician(states: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    table = np.array([[0.9, 0.095, 0.005], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    return table[states][:, None]


def _logged() -> InSupport:
    """Doses 0 and 1 in state 0, 1 in state 1; state 2 never."""
    states = np.array([0] * 60 + [1] * 40)
    doses = np.array([0] * 50 + [1] * 50)
    return InSupport(fit_density(STATES, states, doses[:, None], 5.0, 100, 0))


def test_the_example_in_the_docstring_holds() -> None:
    assert doctest.testmod(guard_module).failed == 0
    assert doctest.testmod(guard_module).attempted > 5


def test_what_nothing_speaks_against_is_done() -> None:
    guarded = GuardedPolicy(STATES, _always(1), [_logged(), NotRare(_clinician)], _clinician)
    decision = guarded.act([0])
    assert (decision.action, decision.vetoed, decision.recommended) == (1, False, 1)
    assert decision.reason == "dose 1 recommended, nothing against it"
    assert guarded.vetoes == []


def test_out_of_support_falls_back_to_what_clinicians_do_most() -> None:
    guarded = GuardedPolicy(STATES, _always(2), [_logged()], _clinician)
    decision = guarded.act([1, 0])
    assert (decision.action, decision.vetoed, decision.recommended) == (0, True, 2)
    assert "rarely or never given in situations like this one" in decision.reason
    assert decision.reason.endswith("clinicians' usual dose 0 instead")


def test_a_known_order_of_the_clinician_is_the_fallback() -> None:
    decision = GuardedPolicy(STATES, _always(2), [_logged()], _clinician).act([0], logged=1)
    assert decision.action == 1
    assert decision.reason.endswith("the clinician's order dose 1 instead")


def test_a_situation_unlike_all_others_is_told_from_an_action_unlike_others() -> None:
    decision = GuardedPolicy(STATES, _always(1), [_logged()], _clinician).act([2])
    assert "this patient's situation is unlike those the policy was trained on" in decision.reason
    assert decision.action == 2


def test_a_rare_action_is_vetoed_with_its_share() -> None:
    guarded = GuardedPolicy(STATES, _always(2), [NotRare(_clinician, 0.01)], _clinician)
    assert "clinicians choose it in 0.5 % of such situations (limit 1 %)" in guarded.act([0]).reason
    assert not guarded.act([1]).vetoed


def test_a_rule_forbids_while_its_column_is_beyond_the_limit() -> None:
    rule = Rule(Limit("MAP", "above", 90.0), forbidden=(2,), because="no more vasopressor at a high pressure")
    guarded = GuardedPolicy(STATES, _always(2), [rule.bound(STATES)], _clinician, state_features=FEATURES)
    assert not guarded.act([0]).vetoed
    reason = guarded.act([1]).reason
    assert "it is not given while MAP > 90 (MAP is 95): no more vasopressor at a high pressure" in reason
    with pytest.raises(BadInput, match="lactate"):
        Rule(Limit("lactate", "above", 4.0), forbidden=(1,)).bound(STATES)


def test_a_rule_holds_for_the_fallback_too() -> None:
    """Clinicians do 1 most in state 1, then 0 and 2 alike."""
    above = Limit("MAP", "above", 90.0)
    for forbidden, instead in (((2,), 1), ((1, 2), 0)):
        rule = Rule(above, forbidden).bound(STATES)
        assert GuardedPolicy(STATES, _always(2), [rule], _clinician, state_features=FEATURES).act([1]).action == instead
    every = GuardedPolicy(
        STATES, _always(2), [Rule(above, (0, 1, 2)).bound(STATES)], _clinician, state_features=FEATURES
    )
    with pytest.raises(BadInput, match="rules forbid what clinicians would do as well"):
        every.act([1])
    assert every.act([1], logged=2).action == 2
    masked = GuardedPolicy(STATES, _always(2), [Rule(above, (1,)).bound(STATES)], _always(1), state_features=FEATURES)
    assert masked.act([1]).action == 2


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        (VECTORS, Rule(Limit("o:MAP", "above", 90.0), forbidden=(3,))),
        (VECTORS, Rule(Limit("o:MAP", "above", 90.0), most={0: 0.5})),
        (VECTORS, Rule(Limit("o:MAP", "above", 90.0))),
        (DOSES, Rule(Limit("o:MAP", "above", 90.0), forbidden=(0,))),
        (DOSES, Rule(Limit("o:MAP", "above", 90.0), most={1: 0.5})),
    ],
)
def test_a_rule_that_could_never_hold_is_refused(spec: LogSpec, rule: Rule) -> None:
    with pytest.raises(BadInput, match="rule while o:MAP > 90: this log has"):
        rule.bound(spec)


def test_rules_need_values_of_their_columns() -> None:
    rule = Rule(Limit("MAP", "above", 90.0), forbidden=(2,)).bound(STATES)
    with pytest.raises(BadInput, match="nothing is known of the states"):
        GuardedPolicy(STATES, _always(2), [rule], _clinician)


def test_actions_are_called_by_their_names() -> None:
    guarded = GuardedPolicy(STATES, _always(2), [_logged()], _clinician, named=("none", "some", "much"))
    reason = guarded.act([0]).reason
    assert reason.startswith("much vetoed: ")
    assert reason.endswith("clinicians' usual none instead")


def test_an_order_is_taken_as_numbers_come_and_checked() -> None:
    guarded = GuardedPolicy(STATES, _always(2), [_logged()], _clinician)
    decision = guarded.act([0], logged=np.int64(1))  # type: ignore[arg-type]
    assert type(decision.action) is int
    assert decision.reason.endswith("the clinician's order dose 1 instead")
    for wrong in (3, -1, 0.5, (1,)):
        with pytest.raises(BadInput, match="logged: an action is a number from 0 to 2"):
            guarded.act([0], logged=wrong)  # type: ignore[arg-type]
    dosed = GuardedPolicy(DOSES, lambda seen, allowed: np.full((1, 1, 1), 0.8), [], None)
    with pytest.raises(BadInput, match="logged: an action is 1 doses"):
        dosed.act([[90.0, 70.0]], logged=0.2)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="allowed: expected one of 3 actions"):
        guarded.act([0], allowed=np.array([True, False]))


def test_rules_bound_continuous_doses() -> None:
    rule = Rule(Limit("o:SpO2", "below", 92.0), most={0: 0.5})
    guarded = GuardedPolicy(DOSES, lambda seen, allowed: np.full((1, 1, 1), 0.8), [rule.bound(DOSES)], None)
    assert guarded.act([[95.0, 70.0]]).action == pytest.approx((0.8,))
    decision = guarded.act([[90.0, 70.0]], logged=(0.2,))
    assert decision.action == (0.2,)
    assert decision.reason.startswith("fluid 0.8 vetoed: it is not given while o:SpO2 < 92 (o:SpO2 is 90)")
    with pytest.raises(BadInput, match="no fallback"):
        guarded.act([[90.0, 70.0]])


def test_every_veto_is_logged_with_its_number_and_situation() -> None:
    told: list[Veto] = []
    guarded = GuardedPolicy(STATES, _always(2), [_logged()], _clinician, state_features=FEATURES, on_veto=told.append)
    for state in (0, 1, 2):
        guarded.act([state])
    assert guarded.vetoes == told
    assert [veto.decision for veto in told] == [0, 1, 2]
    assert told[0].to_json()["observation"] == [60.0]
    assert [veto.action for veto in told] == [0, 1, 2]


def test_missing_values_get_no_recommendation() -> None:
    guarded = GuardedPolicy(VECTORS, _always(1), [], _always(0))
    with pytest.raises(BadInput, match="not a number: o:MAP"):
        guarded.act([[95.0, np.nan]])
    with pytest.raises(BadInput, match="not a number: o:SpO2"):
        guarded.act([[None, 70.0]])
    with pytest.raises(BadInput, match=r"an observation is of numbers: .*high"):
        guarded.act([[95.0, "high"]])
    decision = guarded.act([[95.0, np.nan]], logged=2)
    assert (decision.action, decision.vetoed) == (2, True)
    assert [veto.to_json()["observation"] for veto in guarded.vetoes] == [[95.0, None]]


def test_a_situation_may_come_by_name_and_in_any_order() -> None:
    guarded = GuardedPolicy(VECTORS, lambda seen, _allowed: np.eye(3)[(seen[:, 1] < 70).astype(int)][:, None], [], None)
    assert guarded.act([{"o:MAP": 60.0, "o:SpO2": 95.0}]) == guarded.act([[95.0, 60.0]])
    assert guarded.act([{"SpO2": 95.0, "MAP": 80.0}]).action == 0
    with pytest.raises(BadInput, match=r"no column 'Map'; did you mean MAP\?"):
        guarded.act([{"SpO2": 95.0, "Map": 80.0}])
    with pytest.raises(BadInput, match="not a number: o:MAP"):
        guarded.act([[95.0, 60.0], {"SpO2": 95.0}])


def test_what_is_missing_is_filled_as_the_log_was() -> None:
    seen: list[np.ndarray] = []

    def policy(observations: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
        seen.append(observations[0])
        return np.eye(3)[[0]][:, None]

    guarded = GuardedPolicy(VECTORS, policy, [], None, first={"o:SpO2": 97.0})
    guarded.act([[95.0, 60.0], {"SpO2": 90.0, "MAP": None}, {}])
    guarded.act([[None, 60.0]])
    np.testing.assert_array_equal(seen, [[90.0, 60.0], [97.0, 60.0]])
    with pytest.raises(BadInput, match="not a number: o:MAP"):
        guarded.act([{"SpO2": 95.0}])


def test_what_cannot_be_a_situation_is_said() -> None:
    guarded = GuardedPolicy(STATES, _always(1), [], _clinician)
    with pytest.raises(BadInput, match="no observation"):
        guarded.act([])
    with pytest.raises(BadInput, match="state from 0 to 2, got 3"):
        guarded.act([3])
    with pytest.raises(BadInput, match="2 columns"):
        GuardedPolicy(VECTORS, _always(1), [], None).act([[1.0, 2.0, 3.0]])
    several = LogSpec("", ObservationSpec("states", 3), ActionSpec("discrete", (2, 2)), "units")
    with pytest.raises(BadInput, match="one decision maker"):
        GuardedPolicy(several, _always(1), [], None)


def test_the_density_alone_tells_what_clinicians_do() -> None:
    clinician = conditional(_logged().density, STATES)
    assert clinician is not None
    found = clinician(np.array([0, 1, 2]), None)[:, 0]
    assert found == pytest.approx(np.array([[5 / 6, 1 / 6, 0], [0, 1, 0], [1 / 3, 1 / 3, 1 / 3]]), abs=1e-6)
    mask = np.array([[[False, True, True]]])
    assert clinician(np.array([0]), mask)[0, 0] == pytest.approx([0, 1, 0])
    assert conditional(_logged().density, DOSES) is None


def test_weights_make_the_whole_and_without_a_guardian_none() -> None:
    policy = {"logits.table.rows": np.array([[[0.0, 0, 9], [0, 9, 0], [9, 0, 0]]], np.float32)}
    cloned = {"behaviour.table.rows": np.log(_clinician(np.arange(3), None)[None, :, 0]).astype(np.float32)}
    density = {f"guardian.{name}": array for name, array in _logged().density.arrays().items()}
    guarded = guarded_policy(STATES, policy | cloned | density, 1)
    assert [guarded.act([state]).action for state in (0, 1, 2)] == [0, 1, 2]
    assert [veto.decision for veto in guarded.vetoes] == [0, 2]
    assert "rarely or never" in guarded.vetoes[0].reason
    assert "0.5 %" in guarded.vetoes[0].reason
    with pytest.raises(BadInput, match="least_probability: expected a number from 0 to 1, got 5"):
        guarded_policy(STATES, policy | cloned | density, 1, least_probability=5)
    with pytest.raises(BadInput, match="no guardian"):
        guarded_policy(STATES, policy | cloned, 1)
