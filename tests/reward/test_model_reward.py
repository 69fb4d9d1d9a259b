import asyncio

import pytest
from leaves import Source, task
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Grade, JudgedStep, Judgement, Origin
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import each
from lyceum.reward.model import ModelReward, spans, turns
from lyceum.reward.task import TaskReward
from lyceum.training.stages.reward_model import RewardModel
from lyceum.utils.errors import RecipeError


class Context:
    """A model that rewards a step by how many tokens it ends after."""

    def decode(self, tokens):
        return "".join(chr(token) for token in tokens if token)  # token 0 has no text

    async def judge(self, paths):
        self.asked = paths
        return [Judgement(0.25, [float(end - path.prompt) for end in path.ends]) for path in paths]


def path(*runs):
    node = Node(None, [1, 2], Origin.PROMPT, text="Q")
    for origin, text in runs:
        tokens = [0 if character == "_" else ord(character) for character in text]
        node = node.add(tokens, origin, text.replace("_", ""))
    return node


def graded(settings, leaf):
    context = Context()
    (grade,) = asyncio.run(settings.build(Source(task()))(task(), [leaf], context))
    return grade, context.asked[0]


WRITTEN = path((Origin.POLICY, "1+2=3_"))


def test_every_token_is_a_step_and_one_without_text_is_paid_with_the_last_that_has_some():
    grade, asked = graded(ModelReward(cut="tokens"), WRITTEN)
    assert asked.prompt == 2
    assert asked.ends == [3, 4, 5, 6, 7, 8]
    assert [step.reward for step in grade.steps] == [1, 2, 3, 4, 5 + 6]
    assert [step[:2] for step in grade.steps] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert (grade.outcome, grade.correct) == (0.0, None)
    assert grade.parts == {"outcome": 0.25, "steps": 6, "process": 3.5}


def test_steps_end_at_their_marker_and_the_outcome_is_paid_where_it_is_asked_for():
    by_mark = ModelReward.model_validate(
        {"kind": "model", "cut": "step", "step": {"by": "marker", "markers": ["="], "tokens": 9}, "outcome": True}
    )
    grade, _ = graded(by_mark, WRITTEN)
    assert grade.steps == (JudgedStep(0, 4, 4.0), JudgedStep(4, 5, 6.0))
    assert grade.outcome == 0.25
    alone, asked = graded(ModelReward(outcome=True), WRITTEN)
    assert (alone.outcome, alone.steps, asked.ends) == (0.25, (), [])


def test_a_turn_ends_where_someone_else_writes():
    leaf = path((Origin.POLICY, "1+2="), (Origin.TOOL, "3"), (Origin.POLICY, "#"), (Origin.POLICY, "3"))
    assert [(node.text, end) for node, end in turns(leaf)] == [("1+2=", 6), ("3", 9)]
    turns(leaf)[0][0].reward = -1.0  # the environment's error
    grade, _ = graded(ModelReward(cut="turns", turn_bonus=0.5), leaf)
    assert [step.reward for step in grade.steps] == [4.0, 7.5]


def test_spans_without_text():
    assert spans([1, 2], [0.5, 0.25], [0, 0, 3]) == (JudgedStep(0, 3, 0.75),)
    assert spans([1], [0.5], [0, 0]) == ()


def test_the_verifiers_steps_can_be_left_to_another_part():
    steps = (JudgedStep(0, 1, 1.0),)
    source = Source(task(), each(lambda _, leaf: Grade(1.0, True, steps=steps)))
    for keeps in (True, False):
        grader = TaskReward(steps=keeps).build(source)
        (grade,) = asyncio.run(grader(task(), [WRITTEN], Context()))
        assert grade == Grade(1.0, True, steps=steps if keeps else ())


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["reward={kind: model, outcome: true}"], "which reads a model that evaluations do not have; allowed: in a"),
        (["stages.0.reward=[task, {kind: model, cut: tokens}]"], "'model' in a stage with no value model; allowed:"),
        (
            ["stages.0.reward=[task, {kind: model, cut: tokens}]", "stages.0.value=likelihood"],
            "in a stage with value.kind 'likelihood'; allowed: value.kind 'model' or 'implicit'",
        ),
        (["stages.0.reward=[task, {kind: model}]"], "cut: got 'none' with outcome false, which rewards nothing"),
        (["stages.0.reward=[task, {kind: model, cut: step}]"], "step: got None with cut 'step'; allowed: one with"),
        (["stages.0.reward=[task, {kind: model, cut: tokens, turn_bonus: 1}]"], "turn_bonus: got 1 with cut 'tokens'"),
        (["reward={kind: clip-delta, of: {kind: model, cut: tokens}}"], "a model that evaluations do not have"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_a_model_is_loaded(keys, said):
    with pytest.raises(RecipeError) as error:
        load_recipe("grpo", keys)
    assert said in str(error.value)


class ShownContext(Context):
    def encode(self, completion):
        return [*map(ord, completion), 0]


@pytest.mark.parametrize(("text", "shown"), [("1+2=3#3", "3"), ("1+2=3#4#5", "5"), ("1+2=3", ""), ("#", "")])
def test_a_model_may_be_shown_the_answer_alone(text, shown):
    context, leaf = ShownContext(), path((Origin.POLICY, text))
    part = ModelReward.model_validate({"outcome": True, "shown": {"after": "#"}})
    [grade] = asyncio.run(part.build(Source(task()))(task(), [leaf], context))
    assert [(context.decode(one.tokens[one.prompt :]), one.prompt) for one in context.asked] == [(shown, 2)]
    assert context.asked[0].tokens[:2] == leaf.root.tokens
    assert (grade.outcome, grade.steps, grade.parts["shown"]) == (0.25, (), len(shown) + 1)


def test_steps_of_what_is_not_shown_are_not_asked_for():
    with pytest.raises(ValidationError, match="whose steps are not shown"):
        ModelReward.model_validate({"cut": "tokens", "shown": {"after": "#"}})
    with pytest.raises(ValidationError, match="allowed: outcome or pairs"):
        RewardModel.model_validate({"labels": "steps", "shown": "boxed"})
