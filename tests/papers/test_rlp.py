"""Log-probabilities of a text below a thought and without one, by a model whose tokens are characters."""

import asyncio

import pytest
from character_model import EOS, Model, tokens
from leaves import Source, leaf, task
from pydantic import ValidationError

from lyceum.core.types import Task
from lyceum.papers.rlp.reward_information_gain import InformationGain
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def thought(text, *, ended=False):
    node = leaf(text)
    node.root.tokens = tokens("What? ")
    node.tokens = tokens(text) + [EOS] * ended
    return node


def graded(leaves, **settings):
    model, part = Model(), InformationGain(**settings)
    return asyncio.run(part.build(Source(task()))(task("42"), leaves, model)), model


def test_a_thought_is_paid_by_how_much_likelier_it_makes_the_text():
    # Two characters: -0.5 and -4 below the thoughts, -3 by the average without one.
    grades, model = graded([thought("a sum: "), thought("well ")])
    assert [grade.outcome for grade in grades] == [2.5, -1]
    assert grades[0].parts == {"with": -0.5, "without": -3}
    assert grades[0].verdict is None, "nobody says whether anything was correct"
    assert model.scored == ["What? a sum: 42", "What? well 42"]
    assert model.averaged == ["42"], "one context has one baseline"


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"tokens": 1}, 1.25),  # the next token alone: -0.25 + 1.5
        ({"per": "token"}, 1.25),
        ({"baseline": "policy"}, 1.5),  # the policy's own: -2
        ({"baseline": "none"}, -0.5),
    ],
)
def test_what_is_predicted_and_by_what_it_is_predicted_without_a_thought(settings, outcome):
    grades, _ = graded([thought("a sum: ")], **settings)
    assert grades[0].outcome == outcome


def test_a_thought_that_was_not_closed_is_closed_and_an_end_of_sequence_is_no_part_of_it():
    _, model = graded([thought("a sum#"), thought("a sum"), thought("a sum", ended=True)], close="#")
    assert model.scored == ["What? a sum#42"] * 3


def test_what_exceeds_the_context_is_ungraded_alone():
    grades, _ = graded([thought("a sum: " * 9), thought("a sum: ")])
    assert [grade.outcome for grade in grades] == [None, 2.5]
    assert "too many tokens" in grades[0].reason


def test_tasks_without_a_text_are_refused():
    with pytest.raises(RecipeError, match=r"reward.kind: got 'information-gain'.*no text.*allowed"):
        InformationGain().check_tasks(Source(task(None)))
    grades = asyncio.run(InformationGain().build(Source(task()))(Task("t", (), 3), [thought("x")], Model()))
    assert grades[0].outcome is None


def test_without_a_slow_average_it_is_refused_where_it_asks_for_one():
    with pytest.raises(RecipeError, match=r"average: got none, but reward.kind 'information-gain' reads"):
        load_recipe("rlp", ["stages.0.average=null"])
    load_recipe("rlp", ["stages.0.average=null", "stages.0.reward.0.baseline=policy"])
    with pytest.raises(ValidationError):
        InformationGain(tokens=0)


def test_a_text_without_tokens_is_ungraded():
    model = Model()
    model.encode_after = lambda path, text: []
    (grade,) = asyncio.run(InformationGain(per="token").build(Source(task()))(task("42"), [thought("a")], model))
    assert (grade.outcome, grade.reason) == (None, "the tokenizer has no token for the text that follows")
