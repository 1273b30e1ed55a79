"""Joint values: the sweep is what asking for each joint action would be, the mixer is monotonic."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from refork.agents.joint_q import CentralQ, MonotonicQ, MonotonicView, OneHotView
from refork.agents.q_networks import LogNetworks, LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

S, B, N, A, F = 2, 5, 3, 4, 2


def _factory(hidden: tuple[int, ...] = (8, 8), per_agent: bool = True, kind: str = "vector") -> LogNetworks:
    observation = ObservationSpec(kind, F, per_agent=per_agent)  # type: ignore[arg-type]
    spec = LogSpec("", observation, ActionSpec("discrete", (A,) * N), "units")
    shape = LogShape(spec, np.full(F, 0.5, np.float32), np.full(F, 2.0, np.float32))
    return LogNetworks(shape, hidden, seed=3)


def _monotonic(hidden: tuple[int, ...]) -> MonotonicView:
    generator = torch.Generator().manual_seed(1)
    seen = torch.randn((S, B, N, F), generator=generator)
    q = MonotonicQ(_factory(hidden), S, purpose=0)
    return q.at(seen.transpose(1, 2).flatten(0, 1), seen.flatten(-2))


def _central(hidden: tuple[int, ...]) -> OneHotView:
    generator = torch.Generator().manual_seed(1)
    q = CentralQ(_factory(hidden), S, purpose=0)
    return OneHotView(q.at(torch.randn((S, B, N * F), generator=generator)))


@pytest.mark.parametrize("view", [_monotonic, _central])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 8)])
def test_the_sweep_is_each_joint_action_asked_for_alone(
    view: Callable[[tuple[int, ...]], MonotonicView | OneHotView], hidden: tuple[int, ...]
) -> None:
    seen = view(hidden)
    actions = torch.randint(A, (S, B, N), generator=torch.Generator().manual_seed(2))
    swept = seen.sweep(actions)
    assert swept.shape == (S, B, N, A)
    for i in range(N):
        for a in range(A):
            changed = actions.clone()
            changed[..., i] = a
            alone = seen.of(changed[:, :, None]).squeeze(-1)
            assert torch.allclose(swept[:, :, i, a], alone, atol=1e-5)


def test_the_sweeps_gradient_is_that_of_asking_for_each() -> None:
    seen = torch.randn((S, B, N, F), generator=torch.Generator().manual_seed(1))
    own, joint = seen.transpose(1, 2).flatten(0, 1), seen.flatten(-2)
    actions = torch.randint(A, (S, B, N), generator=torch.Generator().manual_seed(2))
    weights = torch.randn((S, B, N, A), generator=torch.Generator().manual_seed(3))
    q = MonotonicQ(_factory((8,)), S, purpose=0)
    found = torch.autograd.grad((q.at(own, joint).sweep(actions) * weights).sum(), list(q.parameters()))
    view, total = q.at(own, joint), torch.zeros(())
    for i in range(N):
        changed = actions[:, :, None].repeat(1, 1, A, 1)  # (S, B, A, n)
        changed[..., i] = torch.arange(A)
        total = total + (view.of(changed) * weights[:, :, i]).sum()
    wanted = torch.autograd.grad(total, list(q.parameters()))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(found, wanted, strict=True))


def test_candidates_of_a_critic_are_swept_like_actions() -> None:
    view = _central((8, 8)).view
    actions = torch.randn((S, B, N, A), generator=torch.Generator().manual_seed(2))
    candidates = torch.randn((S, B, N, 6, A), generator=torch.Generator().manual_seed(3))
    swept = view.sweep(actions, candidates)
    for i in range(N):
        changed = actions[:, :, None].repeat(1, 1, 6, 1, 1)  # (S, B, C, n, W)
        changed[:, :, :, i] = candidates[:, :, i]
        assert torch.allclose(swept[:, :, i], view.of(changed), atol=1e-5)


def test_q_tot_rises_with_each_utility() -> None:
    mixing = _monotonic((8,)).mixing
    utilities = torch.randn((S, B, 1, N), generator=torch.Generator().manual_seed(4))
    for i in range(N):
        more = utilities.clone()
        more[..., i] += 1.0
        assert (mixing.of(more) >= mixing.of(utilities)).all()
        assert (mixing.of(more) > mixing.of(utilities)).any()


def test_the_mixer_is_the_published_formula() -> None:
    mixing = _monotonic((8,)).mixing
    utilities = torch.randn((S, B, 1, N), generator=torch.Generator().manual_seed(4))
    s, b = 1, 2
    hidden = mixing.bias[s, b] + utilities[s, b, 0] @ mixing.weights[s, b]
    hidden = torch.where(hidden > 0, hidden, hidden.exp() - 1)
    wanted = (hidden @ mixing.out[s, b] + mixing.value[s, b]).item()
    assert mixing.of(utilities)[s, b, 0].item() == pytest.approx(wanted)


def test_a_member_does_not_depend_on_what_is_stacked_beside_it() -> None:
    seen = torch.randn((1, B, N * F), generator=torch.Generator().manual_seed(5))
    actions = torch.nn.functional.one_hot(torch.zeros((1, B, 1, N), dtype=torch.int64), A).float()
    alone = CentralQ(_factory(), 1, purpose=0, copies=2).at(seen).of(actions.repeat_interleave(2, 0))
    stack = CentralQ(_factory(), 3, purpose=0, copies=2)
    together = stack.at(seen.expand(3, -1, -1)).of(actions.expand(6, -1, -1, -1, -1))
    assert torch.allclose(alone, together[:2], atol=1e-6)
    assert not torch.allclose(alone[0], alone[1])


def test_joint_heads_standardise_each_observation() -> None:
    head = _factory(()).joint().head(1, 1)
    seen = torch.tensor([[[0.5, 0.5, 0.5, 0.5, 0.5, 2.5]]])
    assert head.first is not None
    weight, bias = head.first.weights[0][0], head.first.biases[0][0]
    assert head(seen).item() == pytest.approx((weight[5] + bias).item(), abs=1e-6)


def test_joint_heads_see_states_one_hot() -> None:
    head = _factory((), kind="states").joint().head(1, 1)
    assert head.table is None
    assert head(torch.eye(N * F)[None]).shape == (1, N * F, 1)
