import numpy as np
from refork.envs.forkable import Reward
from refork.replay.trajectory import Decision, Origin, TaskExperience, Trajectory
from refork.trainers.advantages import Credit
from refork.trainers.batch import make_batch


def _decision(value: float, actions: int) -> Decision:
    observation = {"features": np.full((actions, 2), value, np.float32), "mask": np.ones(actions, np.bool_)}
    return Decision("s", observation, actions - 1, -value, 0.5, 0.1)


def _experience() -> TaskExperience:
    main = Trajectory("t", 0, 0, (_decision(1, 2), _decision(2, 3)), Reward(1.0))
    other = Trajectory("t", 0, 1, (_decision(3, 2),), Reward(0.0))
    branch = Trajectory("t", 0, 2, (_decision(4, 1),), Reward(0.0), Origin(main.key, 1))
    return TaskExperience("t", 0, (main, other), (branch,))


def test_only_decisions_with_an_advantage_are_in_it_and_short_menus_are_padded() -> None:
    experience = _experience()
    credit = Credit({"t/0/0": np.array([0.0, 0.5]), "t/0/1": np.array([0.0]), "t/0/2": np.array([-1.0])})
    batch = make_batch([experience], [credit])
    assert batch is not None
    assert len(batch) == 2
    assert batch.advantages.tolist() == [0.5, -1.0]
    assert batch.actions.tolist() == [2, 0]
    assert batch.log_probs.tolist() == [-2.0, -4.0]
    assert batch.mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.features[:, :, 0].tolist() == [[2.0] * 3, [4.0, 0.0, 0.0]]
    assert batch.rollouts.tolist() == [0, 2]
    assert batch.branch.tolist() == [False, True]


def test_trajectories_are_numbered_over_all_groups() -> None:
    credit = Credit({"t/0/0": np.array([1.0, 1.0]), "t/0/1": np.array([1.0])})
    batch = make_batch([_experience()] * 2, [credit] * 2)
    assert batch is not None
    assert batch.rollouts.tolist() == [0, 0, 1, 3, 3, 4]


def test_nothing_to_learn_is_none() -> None:
    assert make_batch([_experience()], [Credit({"t/0/0": np.zeros(2)})]) is None
    assert make_batch([], []) is None
