"""The trainer: every update learns, resuming equals never having stopped, phases ask for what they need."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from refork.envs.forkable import BadInput
from refork.replay.game_pack import LostGames
from refork.replay.games import ImproveConfig, PlayConfig, PlayedGames
from refork.trainers.loop import Diverged
from refork.trainers.pmd.trainer import Trainer

from tests.trainers.pmd.bandit import make_trainer, payoff, play

UPDATES = [
    {"update": "pmd", "eta": 1.0},
    {"update": "pmd", "eta": 1.0, "baseline": "counterfactual"},
    {"update": "pmd", "eta": 0.1, "eta_schedule": "target", "kl_target": 0.05},
    {"update": "ppo_clip"},
    {"update": "ppo_kl", "eta": 1.0, "kl_target": 0.05},
    {"update": "mmd", "eta": 1.0, "tau": 0.05},
    {"update": "mmd", "eta": 1.0, "tau": 0.05, "magnet": "moving"},
    {"update": "mappo"},
]


def _same(first: object, second: object) -> bool:
    if isinstance(first, torch.Tensor):
        return first.equal(second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(first[k], second[k]) for k in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return first == second


@pytest.mark.parametrize("options", UPDATES, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_every_update_learns_what_to_choose(options: dict) -> None:
    """Choosing at random pays about 0 (demand) and below 0.3 (supply, which must read its coupled sites)."""
    trainer = make_trainer(**options)
    before = payoff(trainer, range(1000, 1005))
    for update in range(30):
        trainer.update(update, [play(trainer, update)])
    after = payoff(trainer, range(1000, 1005))
    assert (after - before > 0.35).all(), (before, after)


@pytest.mark.parametrize("options", UPDATES, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_resuming_equals_never_having_stopped_to_the_bit(options: dict) -> None:
    options = {**options, "warm_updates": 1, "critic_updates": 1, "warm_heuristic": "chosen", "schedule": "linear"}
    straight, stopped = make_trainer(**options), make_trainer(**options)
    for update in range(5):
        row = straight.update(update, [_played(straight, update)])
        again = stopped.update(update, [_played(stopped, update)])
        assert row == again
        state = copy.deepcopy(stopped.state_dict())
        stopped = make_trainer(**options)
        stopped.load_state_dict(state)
    assert _same(straight.state_dict(), stopped.state_dict())


def _played(trainer: Trainer, update: int) -> PlayedGames:
    """As asked for: a heuristic that chooses the best site and its node, or the policy."""
    games = play(trainer, update)
    asked = trainer.fork_config(update).behaviour
    return games if asked == "policy" else _by_heuristic(games, asked)


def _by_heuristic(games: PlayedGames, name: str) -> PlayedGames:
    moves = np.stack(
        [
            np.where(m[..., :-1], f[..., 0], -9.0).argmax(-1)
            for m, f in zip(games.masks, (games.site, games.node), strict=True)
        ],
        -1,
    )
    legal = [np.take_along_axis(m, moves[..., a : a + 1], -1)[..., 0] for a, m in enumerate(games.masks)]
    moves = np.where(np.stack(legal, -1), moves, [games.site.shape[2], games.node.shape[2]])
    return replace(games, actions=moves, log_probs=np.zeros_like(games.log_probs), behaviour=name)


def test_a_batch_of_mixed_sizes_and_chunks_is_one_update() -> None:
    trainer = make_trainer(minibatch=0)
    chunks = [play(trainer, 0, [(4, 4)] * 3), play(trainer, 1, [(7, 5), (3, 5)]), play(trainer, 2, [(4, 4)])]
    row = trainer.update(0, [*chunks, LostGames(("x",), "the actor died")])
    assert row["decisions"] == 6 * 4 * 2
    assert row["behaviour_gap"] < 1e-5


def test_games_in_one_chunk_or_in_several_or_padded_give_the_same_step() -> None:
    """One minibatch: the loss is a mean over decisions, however they came."""
    games = play(make_trainer(), 0)
    whole, halves = make_trainer(minibatch=0), make_trainer(minibatch=0)
    whole.update(0, [games])
    halves.update(0, [games.take(np.arange(5)), games.take(np.arange(5, 12))])
    for one, other in zip(whole.network.parameters(), halves.network.parameters(), strict=True):
        assert one.detach().numpy() == pytest.approx(other.detach().numpy(), abs=1e-4)


def test_without_games_nothing_moves() -> None:
    trainer = make_trainer()
    before = copy.deepcopy(trainer.network.state_dict())
    row = trainer.update(0, [LostGames(("x",), "the actor died")])
    assert row["skipped_update"] == 1.0
    assert _same(before, trainer.network.state_dict())


def test_the_old_policy_is_frozen_for_the_whole_iteration_and_drift_adds_up() -> None:
    trainer = make_trainer(eta=1.0)
    total = 0.0
    for update in range(3):
        games = play(trainer, update)
        frozen = copy.deepcopy(trainer.network)
        row = trainer.update(update, [games])
        total += row["drift/demand/kl"]
        assert row["drift/demand/kl_total"] == pytest.approx(total)
        assert row["drift/demand/kl"] == pytest.approx(_kl(frozen, trainer, games), rel=1e-4)
    assert trainer.state_dict()["kl_total"][0] == pytest.approx(total)


def _kl(old: torch.nn.Module, trainer: Trainer, games: PlayedGames) -> float:
    from refork.trainers.pmd.batch import minibatches
    from refork.trainers.pmd.loss import divergence

    [[part]] = minibatches([games], 0, trainer.network.heads, np.random.default_rng(0))
    new, before = (n(part.features, part.wiring, part.masks)[0] for n in (trainer.network, old))
    return divergence(new, before, part.masks[0]).mean().item()


def test_small_eta_drifts_less() -> None:
    totals = []
    for eta in (0.03, 3.0):
        trainer = make_trainer(eta=eta)
        for update in range(5):
            row = trainer.update(update, [play(trainer, update)])
        totals.append(row["drift/demand/kl_total"])
    assert totals[0] < 0.5 * totals[1]


def test_phases_ask_for_a_heuristic_then_for_the_policy_then_for_search() -> None:
    trainer = make_trainer(warm_updates=1, critic_updates=1, warm_heuristic="chosen", improve_candidates=4)
    asked = [trainer.fork_config(0)]
    for update in range(2):
        trainer.update(update, [_played(trainer, update)])
        asked.append(trainer.fork_config(update + 1))
    assert asked == [PlayConfig("chosen"), PlayConfig(), PlayConfig(improve=ImproveConfig(4, 0.25, 0.5))]
    with pytest.raises(BadInput, match="played by other, this update needs policy"):
        trainer.update(2, [replace(play(trainer, 2), behaviour="other")])


def test_a_warm_start_clones_the_heuristic_and_leaves_the_policy_while_only_critics_learn() -> None:
    trainer = make_trainer(warm_updates=30, critic_updates=2, warm_heuristic="chosen", tau=0.1, magnet="initial")
    losses = [trainer.update(u, [_played(trainer, u)])["loss/demand/distil"] for u in range(30)]
    assert losses[-1] < 0.5 * losses[0]
    clone = copy.deepcopy(trainer.network.state_dict())
    row = trainer.update(30, [play(trainer, 30)])
    assert "loss/demand/total" not in row
    assert _same(clone, trainer.network.state_dict())
    trainer.update(31, [play(trainer, 31)])
    trainer.update(32, [play(trainer, 32)])
    assert trainer.magnet is not None
    assert _same(clone, trainer.magnet.state_dict())
    assert not _same(clone, trainer.network.state_dict())


def test_a_teacher_is_imitated_where_it_speaks() -> None:
    trainer = make_trainer(eta=1.0)
    first = last = 0.0
    for update in range(25):
        games = play(trainer, update)
        teacher = np.where(np.arange(4)[:, None, None] < 2, _by_heuristic(games, "x").actions, -1)
        last = trainer.update(update, [replace(games, teacher=teacher, rewards=0 * games.rewards)])[
            "loss/demand/distil"
        ]
        first = first or last
    assert last < 0.8 * first


def test_value_targets_are_scaled_so_that_money_may_come_in_any_unit() -> None:
    """The same games paid in cents: same minibatches, same normalised targets, same networks afterwards."""
    plain, cents = make_trainer(), make_trainer()
    for update in range(3):
        games = play(plain, update)
        plain.update(update, [games])
        cents.update(update, [replace(games, rewards=100 * games.rewards)])
    for one, other in zip(plain.network.parameters(), cents.network.parameters(), strict=True):
        assert one.detach().numpy() == pytest.approx(other.detach().numpy(), abs=1e-3)


def test_a_checkpoint_of_another_network_is_refused() -> None:
    with pytest.raises(BadInput, match="another network than the job's agent"):
        make_trainer().load_state_dict(make_trainer(view="own").state_dict())
    with pytest.raises(BadInput, match=r"--trainer\.learning_rate 0\.01"):
        make_trainer(learning_rate=0.02).load_state_dict(make_trainer().state_dict())


def test_training_that_goes_to_infinity_says_where_and_leaves_the_weights_finite() -> None:
    trainer = make_trainer()
    games = play(trainer, 0)
    with pytest.raises(Diverged, match=r"update 0: the gradient of demand is nan; lower trainer\.learning_rate"):
        trainer.update(0, [replace(games, rewards=np.full_like(games.rewards, np.inf))])
    assert all(torch.isfinite(p).all() for p in trainer.network.parameters())
