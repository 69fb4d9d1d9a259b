"""Tree search without a verifier: what its terminals are worth, by hand."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))
from tree_fakes import FakeTreeContext

from lyceum.rollout.steps import Steps
from lyceum.strategy.mcts import JudgedSearch, TreeSearch
from lyceum.types import Sampling, Task

LIMIT = Sampling(max_completion_tokens=12)


class Unjudged(FakeTreeContext):
    def __init__(self, worth=lambda text: 0.5, **more):
        super().__init__(lambda text: pytest.fail("the verifier was asked"), **more)
        self.worth = worth

    async def value(self, paths):
        return [self.worth(path.completion) for path in paths]


def search(context, size, **settings):
    strategy = TreeSearch.model_validate({"width": 2, "step": Steps(tokens=1), **settings})
    return asyncio.run(strategy.growth(size, LIMIT).build()(Task("t", ()), context))


def test_a_terminal_is_worth_the_share_of_answers_that_agree_with_it():
    # Answers of one letter: below a the ends a, a; below b b, b. First expansion of ends: 2 of 2 say a. Second: b, b
    # among 4. 2 v - 1 is backed up. Counting the answers of an expansion after judging it would give the first -1.
    context = Unjudged(length=1)
    tree = search(context, 4, judge="agreement")
    values = {(leaf.completion, leaf.value) for leaf in tree.trajectories}
    assert values == {("a", 1.0), ("b", 0.0)}
    assert context.graded == []
    assert "right" not in tree.record["mcts"]


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


def test_the_judge_decides_whether_values_are_read():
    assert TreeSearch().reads_values
    assert not TreeSearch(judge="agreement", choose="majority").reads_values
    assert TreeSearch(judge="agreement", choose="best").reads_values
    assert JudgedSearch.grade.__qualname__.startswith("JudgedSearch"), "training's own grading asks the verifier"
