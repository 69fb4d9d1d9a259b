import pytest
import torch
from random_trees import letters

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.tp_grpo.credit_thoughts import Thoughts, process_advantages

G, W = True, False


def tree_of(name, *rows):
    """(correct, verdicts on its steps) of each row; a step is one token."""
    root = Node(None, [1], Origin.PROMPT)
    for number, (correct, steps) in enumerate(rows):
        n = len(steps)
        tokens = [10 * number + 5 + i for i in range(n)]
        leaf = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
        judged = tuple(JudgedStep(i, i + 1, float(good)) for i, good in enumerate(steps) if good is not None)
        leaf.grade = Grade(float(correct), correct, steps=judged)
    return Tree(Task(name, ()), [root])


def credited(*rows, **settings):
    forest = build_forest([tree_of("t", *rows)], decode=letters)
    return Thoughts(**{"scale": "none"} | settings).build()(forest)


def test_wrong_thoughts_of_a_correct_answer_lose_the_share_of_the_groups_accuracy():
    # One of two is correct: outcomes +-1/2, r_c = 2 * 1/2. Its thoughts: good, wrong (two steps), good.
    found = credited((True, (G, W, W, G)), (False, (W, W)), alpha=2.0)
    assert found.advantage[0].tolist() == [0, 0.5, -0.5, -0.5, 0.5]
    assert found.advantage[1, :3].tolist() == [0, -0.5, -0.5]
    # Sums of 1/2 and -1/2 with mean -1/6: squared deviations 6/4 - 1/6. With the outcome's, of mean 1/6: 2/4 + 1/6.
    shares = {"outcome/share": pytest.approx(0.5), "process/share": pytest.approx(0.5)}
    assert found.metrics == {"thoughts": 4, "thoughts/wrong": 1, "thoughts/cleared": 0, "tokens_changed": 2, **shares}


def test_thoughts_that_an_incorrect_answer_does_not_use_lose_nothing():
    found = credited((False, (W, G, G, W)), (True, (G,)))
    assert found.advantage[0].tolist() == [0, -0.5, 0, 0, -0.5]
    assert found.metrics["thoughts/cleared"] == 1


def test_where_no_answer_is_correct_a_correct_ones_penalty_would_be_nothing():
    # All incorrect: outcomes are equal, and clearing a thought of an advantage of 0 leaves 0.
    assert not credited((False, (G, W)), (False, (W, W))).advantage.any()
    # All correct: the outcomes say nothing, r_c is alpha.
    assert credited((True, (W, G)), (True, (G, G))).advantage.tolist() == [[0, -1, 0], [0, 0, 0]]


def test_the_last_step_has_the_answers_verdict():
    # The judge finds the last step of a correct answer wrong, and clears that of an incorrect one: neither counts.
    found = credited((True, (G, W)), (False, (W, G)))
    assert found.advantage.tolist() == [[0, 0.5, 0.5], [0, -0.5, -0.5]]


def test_rewards_of_single_steps_add_up_and_can_punish_a_good_step_for_those_after_it():
    # good, wrong, wrong, answer: 1 - 1 - 1, -1 - 1, -1, 0. Merged, the good one keeps its 0.
    verdicts = [G, W, W, G]
    assert process_advantages(verdicts, reward=1.0, unit="step") == [-1, -2, -1, 0]
    assert process_advantages(verdicts, reward=1.0) == [0, -1, -1, 0]
    # An incorrect answer with advantage -1/2: cleared, used, cleared, the answer.
    assert process_advantages([G, W, G, W], reward=0.5) == [0.5, 0, 0.5, 0]


def test_rows_without_a_judged_step_or_a_verdict_have_the_outcome_alone(forest_of):
    forest = forest_of([(1.0, 2), (0.0, 1)])
    found = Thoughts().build()(forest)
    assert found.advantage.equal(GroupRelative().build()(forest).advantage)
    assert found.metrics["thoughts"] == 0
    partly = credited((True, (W, G)), (False, (None, None)))
    assert partly.advantage.tolist() == [[0, 0, 0.5], [0, -0.5, -0.5]]


@pytest.mark.parametrize("unit", ["thought", "step"])
def test_alpha_0_leaves_correct_answers_to_the_outcome(unit):
    found = credited((True, (W, G, W)), (False, (W, W, W)), alpha=0.0, unit=unit)
    torch.testing.assert_close(found.advantage[0], torch.tensor([0, 0.5, 0.5, 0.5]))
