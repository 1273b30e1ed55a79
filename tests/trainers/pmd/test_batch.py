"""Minibatches hold every game once, whole, with its own topology, whatever sizes and chunks the games came in."""

import numpy as np
import pytest
import torch
from refork.replay.games import PlayedGames
from refork.trainers.pmd import batch
from refork.trainers.pmd.batch import Part, minibatches

from tests.agents.cross_graph_cases import make_case

ROUNDS = 3


def _games(sizes: list[tuple[int, int]], seed: int, teacher: bool = False) -> PlayedGames:
    """The first site feature is the game's own number, the second the round."""
    case, count = make_case(sizes, seed), len(sizes)
    site = np.repeat(case.site[None], ROUNDS, 0)
    site[..., 0] = 100 * seed + np.arange(count)[:, None]
    site[..., 1] = np.arange(ROUNDS)[:, None, None]
    moves = np.tile(np.arange(count)[:, None] % 2, (ROUNDS, 1, 2))
    blank = np.zeros((ROUNDS, count, 2))
    return PlayedGames(
        tuple(f"game-{seed}-{i}" for i in range(count)),
        0,
        case.topology,
        site,
        np.repeat(case.node[None], ROUNDS, 0),
        (np.repeat(case.masks[0][None], ROUNDS, 0), np.repeat(case.masks[1][None], ROUNDS, 0)),
        moves,
        blank.astype(np.float32),
        blank + site[:, :, 0, :1],
        blank,
        moves if teacher else None,
        attempts=tuple(range(count)),
        noise_seeds=tuple(range(count)),
    )


def _numbers(part: Part) -> list[list[int]]:
    """Per round: the games' own numbers."""
    first = part.features[0].view(part.rounds, part.games, -1, 3)[:, :, 0]
    assert (first[..., 1] == torch.arange(part.rounds)[:, None]).all()
    assert (part.rewards[..., 0] == first[..., 0]).all()
    return first[..., 0].int().tolist()


CHUNKS = [_games([(4, 4)] * 5, 1), _games([(6, 3), (2, 3)], 2), _games([(4, 4)] * 2, 3, teacher=True)]


@pytest.mark.parametrize(("size", "steps"), [(0, 1), (2, 5), (4, 3), (100, 1)])
def test_every_game_is_in_one_part_of_one_minibatch(size: int, steps: int) -> None:
    found = minibatches(CHUNKS, size, 2, np.random.default_rng(0))
    assert len(found) == steps
    assert max(sum(p.games for p in b) for b in found) - min(sum(p.games for p in b) for b in found) <= 1
    rows = [_numbers(part) for step in found for part in step]
    assert all(row == numbers[0] for numbers in rows for row in numbers)
    assert sorted(n for numbers in rows for n in numbers[0]) == [100, 101, 102, 103, 104, 200, 201, 300, 301]


def test_parts_hold_one_size_and_their_own_edges() -> None:
    degrees = {}
    for chunk in CHUNKS:
        ends = np.bincount(chunk.topology.pairs[0], minlength=chunk.topology.site_mask.size)
        for game, row in enumerate(ends.reshape(chunk.topology.site_mask.shape)):
            degrees[int(chunk.site[0, game, 0, 0])] = np.log1p(row)
    for part in (p for step in minibatches(CHUNKS, 4, 2, np.random.default_rng(1)) for p in step):
        found = part.wiring.sides[0].own_degree.view(part.rounds, part.games, -1)
        for t, numbers in enumerate(_numbers(part)):
            for g, number in enumerate(numbers):
                assert found[t, g].numpy() == pytest.approx(degrees[number].astype(np.float32))


def test_chunks_without_a_teacher_have_none_to_follow() -> None:
    [parts] = minibatches(CHUNKS, 0, 2, np.random.default_rng(0))
    together = next(p for p in parts if p.games == 7)
    assert together.teacher is not None
    numbers = torch.tensor(_numbers(together)).flatten()
    assert (together.teacher[numbers < 300] == -1).all()
    assert (together.teacher[numbers >= 300] >= 0).all()
    assert next(p for p in parts if p.games == 2).teacher is None


def test_large_minibatches_come_in_parts_that_fit_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "ROWS", 4 * ROUNDS * 2)
    [parts] = minibatches(CHUNKS, 0, 2, np.random.default_rng(0))
    assert sorted(p.games for p in parts) == [1, 1, 1, 2, 2, 2]
    assert len({id(p.wiring) for p in parts}) == len(parts)
