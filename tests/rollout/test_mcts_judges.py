"""Tree search whose terminals are judged without the verifier: what they are worth, by hand."""

import pytest
from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.settings import Composition
from lyceum.core.steps import Steps
from lyceum.core.types import Sampling
from lyceum.rollout.mcts import MCTS

LIMIT = Sampling(max_completion_tokens=12)


class Unjudged(FakeTreeContext):
    def __init__(self, worth=lambda text: 0.5, **more):
        super().__init__(lambda text: text.startswith("b"), **more)
        self.worth = worth

    async def extend(self, *asked, **more):
        assert not self.graded, "the verifier was asked before the search was over"
        return await super().extend(*asked, **more)

    async def value(self, paths):
        return [self.worth(path.completion) for path in paths]


def search(context, size, **settings):
    rollout = MCTS(width=2, step=Steps(tokens=1), sampling=LIMIT, **settings).sized(size)
    return roll(rollout.build(), context)


def test_a_terminal_is_worth_the_share_of_answers_that_agree_with_it():
    # Answers of one letter: below a the ends a, a; below b b, b. First expansion of ends: 2 of 2 say a. Second: b, b
    # among 4. 2 v - 1 is backed up. Counting the answers of an expansion after judging it would give the first -1.
    context = Unjudged(length=1)
    tree = search(context, 4, judge="agreement")
    values = {(leaf.completion, leaf.value) for leaf in tree.trajectories}
    assert values == {("a", 1.0), ("b", 0.0)}
    # What was found is graded once, for whoever trains on it; the search itself counted no right answers.
    assert sorted(context.graded) == ["a", "a", "b", "b"]
    assert [leaf.grade.correct for leaf in tree.trajectories] == [leaf.completion == "b" for leaf in tree.trajectories]
    assert "right" not in tree.metadata["mcts"]


def test_a_value_model_leads_the_search_to_what_it_likes():
    # Answers of four letters; the model likes what begins with b. What has failed under a drives the search off, and
    # then it stays below b. Agreement has nothing against a, where every answer is another one.
    def letters(judge):
        context = Unjudged(lambda text: 0.75 if text.startswith("b") else 0.0, length=4)
        return [leaf.completion[0] for leaf in search(context, 8, judge=judge).trajectories]

    assert letters("value").count("b") > letters("agreement").count("b")


def test_a_value_is_backed_up_on_the_scale_of_training():
    tree = search(Unjudged(lambda text: 0.75, length=1), 2, judge="value")
    assert [leaf.value for leaf in tree.trajectories] == [0.5, 0.5]


def test_what_is_cut_has_no_answer_to_agree_with():
    context = Unjudged(length=9)
    tree = search(context, 2, depth=2, judge="agreement")
    assert {leaf.finish for leaf in tree.trajectories} == {"length"}
    assert {leaf.value for leaf in tree.trajectories} == {-1.0}


def test_a_judge_that_is_not_there_is_refused():
    (line,) = MCTS(judge="value").conflicts(Composition())
    assert line.startswith("rollout.judge: got 'value', but the stage has no value model; allowed: 'verifier', ")
    assert MCTS(judge="agreement").conflicts(Composition()) == []


@pytest.mark.parametrize(("judge", "led_by"), [("verifier", ("verifier",)), ("value", ("value",)), ("agreement", ())])
def test_whom_the_search_asks_is_its_judge(judge, led_by):
    assert MCTS(judge=judge).needed & {"verifier", "value"} == set(led_by)
