import torch
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.guidance.base import apart
from lyceum.learner.local import LocalConfig
from lyceum.objective.ppo_and_sft import PPOAndSFT

WRONG, RIGHT = Grade(0.0, False), Grade(1.0, True)


def drawn(start, tokens, grade):
    values = [-1.0] * len(tokens)
    leaf = start.add_drawn(Continuation(list(tokens), values, values, [0] * len(tokens), "stop"))
    leaf.grade = grade
    return leaf


def helped_group(own=(RIGHT, WRONG), helped=(RIGHT, WRONG)):
    """Two own rows, and rows that were written under a hint, below the task's prompt and apart from the group."""
    tree = Tree(Task("t", ()), [Node.prompt([3, 4])])
    hinted = tree.add_prompt([3, 9, 4])
    rows = [drawn(tree.root, [5 + i, 6], grade) for i, grade in enumerate(own)]
    rows += [graft(drawn(hinted, [7, 8, 10 + i], grade), apart(tree, tree.root, "k")) for i, grade in enumerate(helped)]
    tree.chosen = rows
    return build_forest([tree])


def planned(forest, **settings):
    credited = GroupRelative(scale="none").build()(forest)
    objective = PPOAndSFT.model_validate({"aggregate": "sequence", **settings}).build()
    return credited, objective, objective.plan(forest, credited, [torch.arange(forest.n_rows)])


def test_what_was_written_with_help_is_in_no_group_and_has_a_weight_of_its_own():
    credited, _, plan = planned(helped_group(), imitation=0.5)
    # Own rows: mean 1/2, so +-1/2. Were the helped ones in their group, its mean would be 1/2 as well, but theirs
    # +-1/2 too; apart they are a group of two with the same rewards. Only the correct one is trained.
    assert credited.advantage[:2, 2:4].tolist() == [[0.5, 0.5], [-0.5, -0.5]]
    assert plan.trained.tolist() == [True, True, True, False]
    assert plan.counts == {"imitated/rows": 1, "imitated/left_out": 1}
    # Two own rows of two tokens: 1/4 each. One helped row of three: 0.5 / 3 each. One divisor for all three rows would
    # give 1/6 and 0.5 / 9.
    expected = [[0, 0, 0.25, 0.25, 0], [0, 0, 0.25, 0.25, 0], [0, 0, 0.5 / 3, 0.5 / 3, 0.5 / 3], [0] * 5]
    torch.testing.assert_close(plan.weight, torch.tensor(expected))


def test_a_row_to_imitate_alone_is_no_group_and_its_advantage_is_0():
    credited, _, plan = planned(helped_group((WRONG, WRONG), (RIGHT,)), imitation=0.5)
    assert not credited.advantage.any()
    assert plan.trained.tolist() == [False, False, True]  # catches rows skipped for their advantage


def test_the_loss_is_ppos_on_own_rows_and_the_cross_entropy_on_the_others():
    forest = helped_group()
    credited, objective, _ = planned(forest, imitation=0.5)
    seen = []
    call = objective.__call__

    class Seeing(type(objective)):
        def __call__(self, batch):
            seen.append((batch, call(batch)))
            return seen[-1][1]

    objective.__class__ = Seeing
    learner = LocalConfig().build(policy_like(plain_model()), total_steps=1, needs=frozenset())
    metrics = learner.step(forest, credited, objective)
    [(batch, (loss, _))] = seen
    logprob = batch.logprob.detach()
    # Ratios are 1 in the first update: PPO's part is -(1/4)(0.5 + 0.5 - 0.5 - 0.5) = 0, the rest is the cross-entropy.
    nll = -logprob[2][batch.mask[2]].mean()
    torch.testing.assert_close(loss.detach(), 0.5 * nll)
    torch.testing.assert_close(torch.tensor(metrics["imitated/nll"]), nll)
    assert metrics["imitated/rows"] == 1


def test_without_imitation_helped_rows_are_not_trained_at_all():
    _, _, plan = planned(helped_group(), imitation=0.0)
    assert plan.trained.tolist() == [True, True, False, False]


def test_a_teachers_rows_are_imitated_too():
    tree = Tree(Task("t", ()), [Node.prompt([3, 4])])
    own = drawn(tree.root, [5, 6], WRONG)
    taught = tree.root.add([7, 8], Origin.TEACHER)
    taught.grade, taught.finish = RIGHT, "stop"
    tree.chosen = [own, taught]
    _, _, plan = planned(build_forest([tree]))
    assert plan.label.tolist() == [0, 1]


def test_a_step_that_only_imitates_has_a_learning_signal():
    settings = PPOAndSFT(imitation=0.1)
    assert settings.imitates(helped_group((WRONG, WRONG), (RIGHT,)))
    assert not settings.imitates(helped_group((WRONG, WRONG), (WRONG,)))
    assert not PPOAndSFT(imitation=0).imitates(helped_group())
