"""A guarded policy from exported weights: policy, guardian and cloned clinicians of one training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from refork.agents.density import Density, density_of
from refork.agents.guard import GuardedPolicy, Veto
from refork.agents.guard_checks import Check, InSupport, NotRare, Rule
from refork.agents.log_policy import LogPolicy
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, LogSpec


def guarded_policy(
    spec: LogSpec,
    weights: Mapping[str, np.ndarray],
    seeds: int,
    seed: int = 0,
    *,
    rules: Sequence[Rule] = (),
    least_probability: float = 0.01,
    named: Sequence[str] = (),
    state_features: np.ndarray | None = None,
    first: Mapping[str, float] | None = None,
    on_veto: Callable[[Veto], None] = lambda veto: None,
) -> GuardedPolicy:
    """The `seed`-th training's policy, from weights with a head `guardian.*` and, of trainer `ogsrl`, `behaviour.*`.

    Vetoed are recommendations out of support, those that clinicians choose with less than `least_probability` (discrete
    actions), and what `rules` forbid. The fallback is what clinicians do most, as cloned or by the guardian's density.
    Raises BadInput for weights without a guardian, or a rule on a column that the log does not have.
    """
    if not 0 <= least_probability <= 1:
        raise BadInput(f"least_probability: expected a number from 0 to 1, got {least_probability}")
    guardian = {
        name.removeprefix("guardian."): array for name, array in weights.items() if name.startswith("guardian.")
    }
    if not guardian:
        raise BadInput("these weights hold no guardian; train with trainer.kind ogsrl, or fit one to the log")
    density = density_of(guardian)
    acting = "logits" if spec.action.kind == "discrete" else "action"
    heads = {name.replace("behaviour", acting, 1): a for name, a in weights.items() if name.startswith("behaviour.")}
    clinician = LogPolicy(spec, heads, seeds).member(seed) if heads else conditional(density, spec)
    checks: list[Check] = [InSupport(density)]
    if clinician is not None and spec.action.kind == "discrete":
        checks.append(NotRare(clinician, least_probability))
    checks += [rule.bound(spec) for rule in rules]
    policy = LogPolicy(spec, weights, seeds).member(seed)
    return GuardedPolicy(
        spec,
        policy,
        checks,
        clinician,
        named=named,
        state_features=state_features,
        first=first,
        on_veto=on_veto,
    )


def conditional(density: Density, spec: LogSpec) -> Act | None:
    """Clinicians' probabilities of discrete actions as the density has them; None for continuous actions.

    Where nothing was logged at all, all actions alike.
    """
    if spec.action.kind != "discrete":
        return None

    def act(observations: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        scores = density.of_actions(observations).astype(np.float64)[:, None]
        scores = scores if allowed is None else np.where(allowed, scores, -np.inf)
        odds = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e300))
        nothing = odds.sum(-1, keepdims=True) == 0
        odds = np.where(nothing, 1.0 if allowed is None else allowed, odds)
        return odds / odds.sum(-1, keepdims=True)

    return act
