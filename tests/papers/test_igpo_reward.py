"""Turns are paid by how much likelier they make the answer, to a model whose tokens are characters."""

import math

from character_model import Model, tokens
from leaves import Source

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Origin, Task
from lyceum.papers.igpo.reward_answer_gain import AnswerGain, beginnings
from lyceum.utils.aio import run_async


class Scorer(Model):
    """An answer has log(1/8) per token below the prompt, and twice the probability after each answer of the tool."""

    async def score(self, path):
        text = self.decode(path)
        self.scored.append(text)
        return [0.0, *[-3.0] * (len(path) - 3), *[math.log(2 ** text.count("!") / 8)] * 2]


def leaf_of(*turns):
    node = Node.prompt(tokens("What? "), "What? ")
    for number, text in enumerate(turns):
        drawn = Continuation(tokens(text), [-1.0] * len(text), [-1.0] * len(text), [0] * len(text), "stop")
        node = node.add_drawn(drawn, text)
        if number + 1 < len(turns):
            node = node.add(tokens("!"), Origin.TOOL, "!")
    return node


def test_each_turn_but_the_last_is_paid_the_rise_of_the_answers_probability():
    # 1/8 below the prompt, 1/4 after the first answer, 1/2 after the second: the turns earn 1/8 and 1/4.
    model, leaves = Scorer(), [leaf_of("ab", "cd", "#43"), leaf_of("#43")]
    assert list(map(len, beginnings(leaves[0]))) == [6, 9, 12]
    task = Task("t", (), answer="43")
    several, one = run_async(AnswerGain(before="#").build(Source([task]))(task, leaves, model))
    assert [(step.start, step.stop) for step in several.steps] == [(0, 2), (2, 4)]
    assert [round(step.reward, 6) for step in several.steps] == [0.125, 0.25]
    assert several.outcome == one.outcome == 0.0
    assert one.steps == ()
    assert sorted(model.scored) == ["What? #43", "What? ab!#43", "What? ab!cd!#43"], "what is shared is asked once"
    nats = run_async(AnswerGain(before="#", measure="log-probability").grade(task, leaves[:1], Scorer()))
    assert [round(step.reward / math.log(2), 6) for step in nats[0].steps] == [1, 1]


def test_what_cannot_be_scored_is_ungraded():
    class Full(Scorer):
        async def score(self, path):
            raise ValueError("too many tokens to score")

    task = Task("t", (), answer="43")
    long = run_async(AnswerGain().grade(task, [leaf_of("a", "b")], Full()))
    assert long[0].reason == "ValueError: too many tokens to score"
    nothing = run_async(AnswerGain().grade(Task("t", ()), [leaf_of("a")], Scorer()))
    assert "neither a text nor a number" in nothing[0].reason
