"""A model whose yes is likelier the more of a principle's letters the completion has."""

import asyncio

import pytest
from judges import JudgeContext
from leaves import Source, leaf, task
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.ppr.reward_renorm import ReNorm, renormed
from lyceum.papers.rlbff.reward_principles import Principles
from lyceum.reward.base import combine

ASK = {"ask": "{principle}?", "words": ("y", "n")}


class Context(JudgeContext):
    """log p(y) is how often the principle's letter is in the completion; log p(n) is -1."""

    def encode(self, completion):
        return [*map(ord, completion), 0]

    async def score_under(self, model, paths):
        assert model == "reference"
        found = []
        for tokens, start, stop in paths:
            _, said, question = self.decode(tokens[:start]).split("\n")
            self.asked.append((said.removeprefix("assistant: "), question.removeprefix("user: ")))
            word = self.decode(tokens[start:stop])
            found.append([float(said.count(question[-2])) if word == "y" else -1.0])
        return found


def graded(part, *leaves, verdicts=()):
    context = Context()
    of = part.build(Source(task()))
    return asyncio.run(of(task(), leaves, context, *verdicts)), context.asked[::2]


def test_a_completion_earns_the_mean_over_the_principles_of_the_log_odds_of_yes():
    # "xxz": log p(y) - log p(n) is 2 + 1 for x and 0 + 1 for y; "": 1 for both.
    [first, second], asked = graded(Principles(principles=("x", "y"), **ASK), leaf("xxz"), leaf(""))
    assert (first.outcome, second.outcome) == (2.0, 1.0)
    assert first.parts == {"satisfied": 1.0, "1": 3.0, "2": 1.0}
    assert asked == [("xxz", "x?"), ("xxz", "y?"), ("", "x?"), ("", "y?")]
    [other], _ = graded(Principles(principles=("z",), **ASK), leaf("xxz"))
    assert other.outcome == 2.0, "which principle counts is said when it is used"


def test_words_that_the_model_cannot_tell_apart_leave_a_completion_ungraded():
    class OneToken(Context):
        def encode(self, completion):
            return [1, 0]

    grader = combine([Principles(principles=("x",), **ASK)], Source(task()))
    [grade] = asyncio.run(grader(task(), [leaf("a")], OneToken()))
    assert "the same tokens for 'y' and 'n'" in grade.reason


def agent():
    node = Node.prompt([81], "Q")
    for origin, text in [(Origin.POLICY, "x"), (Origin.TOOL, "z"), (Origin.POLICY, "y")]:
        node = node.add(list(map(ord, text)), origin, text)
    return node


def test_each_turn_is_judged_with_the_tools_answers_before_it():
    part = Principles(principles=("x",), read="probability", at="turns", **ASK)
    [grade], asked = graded(part, agent())
    # 1 / (1 + exp(-2)) after both turns: one x each.
    assert asked == [("x", "x?"), ("xzy", "x?")]
    assert [step.reward for step in grade.steps] == pytest.approx([0.8807970779778823] * 2)
    assert (grade.outcome, grade.parts["turns"]) == (0.0, 2.0)


def test_renorm_pays_no_step_of_a_wrong_answer_and_takes_nothing_from_one_of_a_correct_answer():
    # Scores 0.9, 0.2 and a last step: + 0 - 1 where the answer is wrong, + 1 - 1 where it is correct.
    assert renormed([0.9, 0.2, 0.7], 0.0, mu=1.0, last="dropped") == pytest.approx([-0.1, -0.8, 0.0])
    assert renormed([0.9, 0.2, 0.7], 1.0, mu=1.0, last="dropped") == pytest.approx([0.9, 0.2, 0.0])
    assert renormed([0.9, 0.2], 1.0, mu=0.5, last="kept") == pytest.approx([1.4, 0.7])
    assert renormed([], 1.0, mu=1.0, last="dropped") == []


def test_renorm_reads_the_verdicts_and_abstains_without_one():
    part = ReNorm(of=Principles(principles=("x",), read="probability", at="turns", **ASK))
    found, _ = graded(part, agent(), agent(), agent(), verdicts=[[True, False, None]])
    p = 0.8807970779778823
    assert [step.reward for step in found[0].steps] == pytest.approx([p, 0.0])
    assert [step.reward for step in found[1].steps] == pytest.approx([p - 1, 0.0])
    assert (found[2].outcome, found[2].reason) == (None, "no part says whether the answer is correct")
    assert found[1].parts["shifted"] == pytest.approx(p - 1)


def test_principles_and_words_that_say_nothing_are_refused():
    for wrong in (
        {"principles": ()},
        {"principles": ("a", "a")},
        {"principles": ("",)},
        {"principles": ("a",), "words": ("y", "y")},
        {"principles": ("a",), "ask": "Well?"},
    ):
        with pytest.raises(ValidationError):
            Principles.model_validate(wrong)
    with pytest.raises(ValidationError, match="a kind that is not told the verdicts"):
        ReNorm.model_validate({"of": {"kind": "renorm", "of": {"kind": "steps"}}})
