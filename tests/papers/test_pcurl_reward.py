import asyncio
import math

import pytest
from fake_task import NO_MODEL
from leaves import leaf

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.papers.pcurl.reward_dynamic_length import DynamicLength, length_at_target, length_without_target
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import combine, each, verdict
from lyceum.reward.repetition import Repetition, repeated_share
from lyceum.reward.task import TaskReward
from lyceum.tasks import base as tasks
from lyceum.utils.errors import RecipeError


class Source(tasks.Source):
    """Tasks whose verifier takes completions that begin with token 1 for right, and abstains on token 9."""

    def grader(self):
        return each(lambda _, leaf: Grade.ungraded("lost") if leaf.tokens[0] == 9 else verdict(leaf.tokens[0] == 1))


def leaves_of(*tokens):
    root = Node(None, [5, 5, 5], Origin.PROMPT)
    return [
        root.add_drawn(Continuation(list(t), [-1.0] * len(t), [-1.0] * len(t), [0] * len(t), "stop")) for t in tokens
    ]


def graded(part, *tokens):
    return asyncio.run(combine([TaskReward(), part], Source())(Task("t", ()), leaves_of(*tokens), NO_MODEL))


def test_a_wrong_answer_is_pulled_to_the_length_of_the_right_ones():
    # -1/4 (1 + cos(pi L / T)): at 0, T / 2, T, 3 T / 2 it is -1/2, -1/4, 0, -1/4; from 2 T on -1/2.
    assert [length_at_target(length, 10) for length in (0, 5, 10, 15, 20, 90)] == pytest.approx(
        [-0.5, -0.25, 0, -0.25, -0.5, -0.5]
    )


def test_without_a_right_answer_longer_is_free_up_to_the_limit():
    # Half as strong: -1/8 (1 + cos(pi L / T0)) below T0, nothing above, -1/4 at the limit.
    assert [length_without_target(length, 10, 40) for length in (0, 5, 10, 39, 40)] == pytest.approx(
        [-0.25, -0.125, 0, 0, -0.25]
    )


def test_right_answers_get_no_length_reward_and_wrong_ones_the_group_s_target():
    # Right: 2 and 4 tokens, so T = 3. Wrong with 3 tokens: 0; with 1: -1/4 (1 + cos(pi / 3)) = -3/8.
    grades = graded(DynamicLength(), [1, 1], [1, 1, 1, 1], [2, 2, 2], [2])
    assert [grade.outcome for grade in grades] == pytest.approx([1, 1, 0, -0.375])
    assert [grade.correct for grade in grades] == [True, True, False, False]


def test_the_shortest_right_answer_may_be_the_target():
    assert graded(DynamicLength(target="shortest"), [1, 1], [1, 1, 1, 1], [2, 2])[2].outcome == pytest.approx(0)


def test_a_fixed_target_ignores_the_right_answers():
    grades = graded(DynamicLength(target="fixed", fallback=2), [1, 1, 1, 1], [2])
    assert grades[1].outcome == pytest.approx(-0.125 * (1 + math.cos(math.pi / 2)))


def test_the_prompt_s_length_does_not_count():
    assert graded(DynamicLength(fallback=1), [2])[0].outcome == pytest.approx(0)


def test_what_the_verifier_cannot_judge_is_ungraded_and_no_target():
    lost, wrong = graded(DynamicLength(), [9, 9, 9], [2])
    assert lost.outcome is None
    assert wrong.outcome == pytest.approx(length_without_target(1, 750, 4096))


def test_a_part_that_shapes_needs_one_that_judges():
    with pytest.raises(RecipeError, match="dynamic-length, which is told what another part has judged"):
        combine([DynamicLength()], Source())


def test_a_repeated_pair_counts_and_its_first_occurrence_does_not():
    # a b a b a: pairs ab, ba, ab, ba: two of four were there before.
    assert repeated_share(list("ababa"), 2) == pytest.approx(0.5)
    assert repeated_share(list("abc"), 2) == 0
    assert repeated_share(["a"], 2) == 0


def test_only_wrong_answers_are_punished_for_repeating():
    part = Repetition(ngram=1, unit="token")
    right, wrong = graded(part, [1, 1, 1, 1], [2, 2, 2, 2])
    assert (right.outcome, wrong.outcome) == pytest.approx((1, -0.75))
    both = graded(part.model_copy(update={"wrong_only": False}), [1, 1, 1, 1], [2])
    assert both[0].outcome == pytest.approx(0.25)


def test_words_are_the_same_whatever_their_case():
    # Wait wait, WAIT: words wait, wait,, wait (the comma stays): one of three was there before.
    assert Repetition(ngram=1)._pieces(leaf("Wait wait, WAIT")) == ["wait", "wait,", "wait"]


def test_it_says_how_often_it_acted():
    # One of two is correct, with 3 tokens: its own reward is none. The wrong one has 1, and is pulled up to 3.
    right, wrong = graded(DynamicLength(), [1, 1, 1], [2])
    assert (right.parts["dynamic-length/acted"], wrong.parts["dynamic-length/acted"]) == (0, 1)


def test_pcurl_rewards_the_format_in_every_stage():
    recipe = load_recipe("pcurl")
    *before, hard = recipe.stages[1:]
    for parts in (recipe.reward, hard.reward):
        assert [part.weight for part in parts if part.kind == "format"] == [0.5]
    assert [stage.reward for stage in before] == [None, None], "they have the recipe's"
