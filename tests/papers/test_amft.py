import math

import pytest
import torch
from pydantic import ValidationError
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.learner.local import LocalConfig
from lyceum.papers.amft.objective_amft import AMFT, agreement


def taught_group(n):
    """A wrong and a right row of two tokens, and a demonstration of three."""
    tree = Tree(Task(f"t{n}", ()), [Node.prompt([3, 4 + n])])
    tree.chosen = []
    for token, correct in ((5, False), (6, True)):
        values = [-1.0] * 2
        tree.chosen.append(tree.root.add_drawn(Continuation([token, 7], values, values, [0] * 2, "stop")))
        tree.chosen[-1].grade = Grade(float(correct), correct)
    shown = tree.root.add([7, 8, 9], Origin.TEACHER)
    shown.grade, shown.finish = Grade(1.0, True), "stop"
    tree.chosen.append(shown)
    return tree


def forest_of(n=2):
    forest = build_forest([taught_group(i) for i in range(n)])
    return forest, GroupRelative(scale="none").build()(forest)


def test_imitation_and_reinforcement_share_a_weight_of_one():
    forest, credited = forest_of(1)
    objective = AMFT(imitation=0.8, aggregate="sequence").build()
    plan = objective.plan(forest, credited, [torch.arange(3)])
    # (1 - 0.8) / 4 for each of four own tokens, 0.8 / 3 for each of the demonstration's three.
    expected = torch.tensor([[0, 0, 0.05, 0.05, 0], [0, 0, 0.05, 0.05, 0], [0, 0, 0.8 / 3, 0.8 / 3, 0.8 / 3]])
    torch.testing.assert_close(plan.weight, expected)


def test_agreement_is_positive_where_more_imitation_lowers_the_loss_that_counts():
    better, imitated, reinforced = torch.tensor([1.0, 0]), torch.tensor([2.0, 1]), torch.tensor([-1.0, 4])
    # Their difference is (3, -3). With L = theta_1, theta' = theta - lr ((1 - mu) g_RL + mu g_SFT) and lr 1:
    # L(mu) = -((1 - mu) (-1) + 2 mu) = 1 - 3 mu falls with mu. The cosine is 3 / sqrt(18) = 1 / sqrt(2).
    assert agreement(better, reinforced, imitated) == pytest.approx(1 / math.sqrt(2))
    assert agreement(-better, reinforced, imitated) == pytest.approx(-1 / math.sqrt(2))
    assert agreement(better, imitated, imitated) == 0


def test_mu_follows_agreement_and_entropy_within_its_bounds():
    objective = AMFT(imitation=0.5, highest=0.6, meta_lr=0.1, entropy_lr=0.2).build()
    objective.observe({"amft/agreement": 0.5, "entropy": 0.4})
    assert objective.mu == pytest.approx(0.55)  # 0.1 * 0.5; the first entropy is the target
    objective.observe({"amft/agreement": -0.5, "entropy": 0.3})
    assert objective.mu == pytest.approx(0.52)  # - 0.05 + 0.2 * (0.4 - 0.3)
    again = AMFT(imitation=0.5, highest=0.6, meta_lr=0.1, entropy_lr=0.2).build()
    again.load_state_dict(objective.state_dict())
    for each in (objective, again):
        each.observe({"amft/agreement": 1.0, "entropy": 0.1})
        assert each.mu == 0.6


def test_what_counts_is_measured_on_tasks_whose_losses_are_not_compared():
    forest, credited = forest_of(4)
    trained = []

    def gradients(part):
        trained.append(part.plan(forest, credited, [torch.arange(12)]).trained.nonzero().flatten().tolist())
        return learner.gradients(forest, credited, part)

    objective = AMFT(held_back=4, aggregate="sequence").build()
    learner = LocalConfig().build(policy_like(plain_model()), total_steps=1, needs=frozenset({"entropy"}))
    found = objective.look_ahead(gradients)
    # Rows 9 to 11 are the fourth task's; a task's third row is its demonstration.
    assert trained == [[9, 10], [0, 1, 3, 4, 6, 7], [2, 5, 8]]
    assert 0 < abs(found["amft/agreement"]) <= 1
    assert learner.step(forest, credited, objective)["amft/agreement"] == pytest.approx(found["amft/agreement"])


def test_no_gradient_is_looked_at_in_between():
    objective = AMFT(meta_every=2).build()
    objective.observe({})
    assert objective.look_ahead(lambda part: pytest.fail("asked for a gradient")) == {}


def test_a_balance_outside_its_bounds_is_refused():
    with pytest.raises(ValidationError, match=r"imitation: got 0.99; allowed: 0.05 to 0.95"):
        AMFT(imitation=0.99)
