"""Episodes of several rows: trained whole, each sampled token once, and counted once by what compares and averages."""

import math

import pytest
import torch
from forest_fixtures import drawn
from random_trees import letters
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree, as_episode, graft
from lyceum.core.types import Grade, Origin, Task
from lyceum.credit.base import KLInReward
from lyceum.credit.group import GroupRelative
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.learner.local import LocalConfig
from lyceum.objective.base import aggregate_weights
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.treerl.credit_step_value import StepValue
from lyceum.run.rollout_table import trajectory_table
from lyceum.training.stages._metrics import mean_abs_advantage, rollout_metrics
from lyceum.training.stages.method import Method
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RunError


def tree_of() -> Tree:
    """Two episodes of one task: the first wrote 2 tokens, was answered, wrote 3 and had its history rewritten before it
    wrote 1; the second wrote 2. Their outcomes are 1 and 0."""
    root = Node.prompt([1, 2])
    first = drawn(root, [10, 11])
    left = drawn(first.add([3], Origin.TOOL), [12, 13, 14])
    # The new history keeps the first turn.
    last = drawn(first.add([4, 5], Origin.PROMPT), [15])
    alone = drawn(root, [20, 21])
    trajectory = as_episode([left, last])
    trajectory.grade, alone.grade = Grade(1.0), Grade(0.0)
    return Tree(Task("t", ()), [root], chosen=[trajectory, alone])


def test_all_leaves_are_rows_and_every_sampled_token_is_trained_once():
    forest = build_forest([tree_of()])
    assert forest.row_length.tolist() == [8, 7, 4]
    assert forest.episode.tolist() == [0, 0, 1]
    # The second row begins with 4 tokens of the first: prompt and first turn.
    assert forest.repeated.tolist() == [0, 4, 0]
    trained = forest.rows().index[forest.trainable(forest.rows())]
    assert sorted(forest.token[trained].tolist()) == [10, 11, 12, 13, 14, 15, 20, 21]
    assert forest.reward.tolist() == [1, 1, 0]
    assert forest.group.tolist() == [0, 0, 0]


def test_a_forest_of_single_leaves_says_nothing_of_episodes():
    tree = tree_of()
    tree.trajectories[0].others = []
    forest = build_forest([tree])
    assert (forest.episode, forest.repeated) == (None, None)
    assert forest.episode_rows.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("credit", "expected"),
    # Of outcomes 1 and 0: mean 1/2, deviation 1/2. Counting rows it would be 2/3 and sqrt(2)/3: 0.707 and -1.414.
    [(GroupRelative(eps=1e-9), [1.0, 1.0, -1.0]), (LeaveOneOut(), [1.0, 1.0, -1.0])],
)
def test_groups_compare_an_episode_once(credit, expected):
    forest = build_forest([tree_of()])
    advantage, trained = credit.build()(forest).advantage, forest.trainable(forest.rows())
    for row, value in enumerate(expected):
        torch.testing.assert_close(advantage[row][trained[row]], torch.full((int(trained[row].sum()),), value))
    assert not advantage[~trained].any()


def test_the_kl_penalty_of_an_episode_is_of_all_its_tokens():
    credit = LeaveOneOut(kl_in_reward=KLInReward(coefficient=0.5)).build()
    forest = build_forest([tree_of()])
    old, reference = torch.zeros(forest.n_tokens), torch.full((forest.n_tokens,), -0.1)
    advantage = credit(forest.with_columns(old_logprob=old, reference_logprob=reference)).advantage
    # 6 tokens of 0.5 * 0.1 against 2 of them: (1 - 0.3) - (0 - 0.1)
    assert advantage[1, 6].item() == pytest.approx(0.8, abs=1e-6)


def test_an_episodes_tokens_count_as_one_rows():
    forest = build_forest([tree_of()])
    mask = forest.trainable(forest.rows())
    by_row = aggregate_weights(mask, "sequence", None, forest.episode).sum(1)
    # 6 tokens in two rows are one half, 5 of 6 in the first; the other episode's 2 are the other half.
    torch.testing.assert_close(by_row, torch.tensor([5 / 12, 1 / 12, 1 / 2]))
    assert float(aggregate_weights(mask, "constant", 4, forest.episode).max()) == 1 / 8
    assert float(aggregate_weights(mask, "token", None, forest.episode).max()) == 1 / 8


def test_the_gradient_is_the_same_however_rows_are_split_and_laid_out():
    forest = build_forest([tree_of()])
    objective, credited = PPOClip(aggregate="sequence").build(), GroupRelative().build()(forest)
    found = []
    for layout, tokens in (("tree", 4096), ("rows", 4096), ("tree", 1), ("rows", 1)):
        config = LocalConfig(layout=layout, micro_batch_tokens=tokens)
        learner = config.build(policy_like(plain_model()), total_steps=1, needs=objective.needs | objective.columns)
        annotated = learner.annotate(forest, frozenset({"old_logprob"}))
        found.append(learner.gradients(annotated, credited, objective))
    for other in found[1:]:
        torch.testing.assert_close(other.coefficient, found[0].coefficient)
        for a, b in zip(found[0].weights, other.weights, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert all(bool(found[0].coefficient[row].any()) for row in range(3))


def test_a_step_counts_an_episode_once():
    tree = tree_of()
    forest = build_forest([tree])
    metrics = rollout_metrics([tree], forest)
    assert metrics["reward/mean"] == 0.5
    assert metrics["completion_tokens/mean"] == (6 + 2) / 2
    assert metrics["entropy"] == 1.0
    credited = GroupRelative(eps=1e-9).build()(forest)
    assert mean_abs_advantage(forest, credited, 1) == pytest.approx([1.0])


def test_the_table_of_rollouts_shows_the_row_that_was_graded():
    tree = tree_of()
    forest = build_forest([tree])
    credited = GroupRelative(eps=1e-9).build()(forest)
    rows = trajectory_table(1, [tree], credited.advantage, letters).to_pylist()
    assert [row["row"] for row in rows] == [1, 2]
    assert rows[0]["token_advantages"][-1] == pytest.approx(1.0)
    assert [math.isnan(row["advantage"]) for row in rows] == [False, False]


def test_what_takes_rows_for_trajectories_is_refused_for_recorded_episodes_of_several():
    stage = Online(steps=1, credit=StepValue())
    with pytest.raises(RunError, match=r"credit.kind: got 'step-value', which takes each row .* 'group' or"):
        Method.of(stage).credited(build_forest([tree_of()]))


def test_all_leaves_of_an_episode_are_grafted_under_the_other_prompt():
    tree = tree_of()
    onto = tree.add_prompt([9])
    copied = graft(tree.trajectories[0], onto)
    assert [leaf.path_tokens() for leaf in copied.episode] == [[9, 10, 11, 3, 12, 13, 14], [9, 10, 11, 4, 5, 15]]
