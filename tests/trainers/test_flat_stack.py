"""Parameters as few long tensors: the network goes on as before, seeds are clipped apart."""

import copy
from collections.abc import Sequence

import pytest
import torch
from refork.agents.multiplier import Multiplier
from refork.agents.stacked import StackedMLP, StackedTable
from refork.trainers import flat_stack
from refork.trainers.flat_stack import FlatStack
from torch import nn


def _generators(members: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(m) for m in range(members)]


def _network() -> nn.ModuleDict:
    """Two seeds of two members each, and a number a seed."""
    mlp = StackedMLP([3, 4, 2], _generators(4))
    return nn.ModuleDict({"mlp": mlp, "table": StackedTable(5, 3, _generators(4)), "weight": Multiplier(2, 0.5)})


def _output(network: nn.ModuleDict) -> torch.Tensor:
    states = torch.tensor([[0, 4], [1, 1], [2, 3], [4, 0]])
    return network["mlp"](network["table"](states)).unflatten(0, (2, 2)) * network["weight"]()[:, None, None, None]


def _write(stack: FlatStack, gradients: Sequence[torch.Tensor]) -> None:
    for place, gradient in zip(stack.gradients.values(), gradients, strict=True):
        place.copy_(gradient)


def test_a_network_answers_as_before() -> None:
    network = _network()
    before = _output(network)
    stack = FlatStack(network, 2)
    assert torch.equal(_output(network), before)
    assert sorted(flat.numel() for flat in stack.flats) == [2, 4 * (3 * 4 + 4 + 4 * 2 + 2 + 5 * 3)]


@pytest.mark.parametrize("alone", [1 << 17, 10])
def test_adam_on_the_long_tensors_is_adam_on_the_parameters(alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat_stack, "ALONE", alone)
    network = _network()
    plain = copy.deepcopy(network)
    stack = FlatStack(network, 2)
    ours, theirs = torch.optim.Adam(stack.flats, lr=0.1), torch.optim.Adam(plain.parameters(), lr=0.1)
    for _ in range(3):
        _write(stack, torch.autograd.grad(_output(network).square().sum(), list(stack.gradients)))
        stack.clip(1e9)
        ours.step()
        theirs.zero_grad()
        _output(plain).square().sum().backward()
        theirs.step()
    for mine, other in zip(network.parameters(), plain.parameters(), strict=True):
        assert mine.detach().numpy() == pytest.approx(other.detach().numpy(), abs=1e-6)


def test_each_seed_is_clipped_by_its_own_norm() -> None:
    stack = FlatStack(Multiplier(4, 1.0), 2)
    _write(stack, [torch.tensor([3.0, 4.0, 0.3, 0.4])])
    stack.clip(1.0)
    (flat,) = stack.flats
    assert flat.grad is not None
    assert flat.grad.flatten().tolist() == pytest.approx([0.6, 0.8, 0.3, 0.4])
    stack.rest()
    assert flat.grad is None


def test_a_target_moves_part_of_the_way() -> None:
    leader, follower = Multiplier(2, 1.0), Multiplier(2, 1.0)
    stacks = FlatStack(leader, 2), FlatStack(follower, 2)
    with torch.no_grad():
        leader.logarithm += 2.0
    stacks[1].follow(stacks[0], 0.25)
    assert follower.logarithm.tolist() == [0.5, 0.5]


def test_a_step_of_adam_is_pytorchs_own_to_the_bit() -> None:
    ours, theirs = ([nn.Parameter(torch.linspace(-1, 1, n)) for n in (5, 3)] for _ in range(2))
    made = [torch.optim.Adam(parameters, lr=0.1, betas=(0.8, 0.9), fused=True) for parameters in (ours, theirs)]
    for step in range(4):
        for parameters in (ours, theirs):
            parameters[0].grad = torch.full((5,), 0.5 - step)
            parameters[1].grad = None if step == 2 else torch.arange(3.0)  # it may rest
        flat_stack.adam_step(made[0])
        made[1].step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    states = [optimiser.state_dict()["state"] for optimiser in made]
    assert all(torch.equal(states[0][k][name], states[1][k][name]) for k in states[0] for name in states[0][k])
