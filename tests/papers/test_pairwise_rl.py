"""A model that prefers the longer of two answers, by one nat per character, and leans to the place shown first."""

import asyncio
import math

import pytest
from judges import JudgeContext
from leaves import Source, leaf, task
from pydantic import ValidationError

from lyceum.papers.pairwise_rl.reward_win_probability import WinProbability, graded
from lyceum.utils.errors import RecipeError

ANCHOR = "four"


class Context(JudgeContext):
    """log p(A) is the first answer's length and a lean of 0.5 nats, log p(B) the second one's."""

    def encode(self, completion):
        return [*map(ord, completion), 0]

    async def score_under(self, model, paths):
        assert model == "reference"
        found = []
        for tokens, start, stop in paths:
            _, first, _, second, _, _ = self.decode(tokens[:start]).split("\n")
            first, second = (text.removeprefix("assistant: ") for text in (first, second))
            word = self.decode(tokens[start:stop])
            self.asked.append((first, second))
            found.append([len(first) + 0.5 if word == "A" else float(len(second))])
        return found


def graded_texts(*texts, key="run", **settings):
    one, context = task(demonstration=ANCHOR), Context(key=key)
    part = WinProbability(**settings)
    part.check_tasks(Source(one))
    leaves = [leaf(text) for text in texts]
    for number, each in enumerate(leaves):
        each.address = number
    return asyncio.run(part.build(Source(one))(one, leaves, context)), context.asked[::2]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_a_completion_earns_the_probability_that_it_beats_the_tasks_own_answer():
    [longer, shorter, equal], asked = graded_texts("sixsix", "ab", ANCHOR)
    # Two longer: +2 and the lean where it is shown first, 2 - 0.5 where the anchor is.
    assert longer.outcome == pytest.approx((sigmoid(2.5) + sigmoid(1.5)) / 2)
    assert shorter.outcome == pytest.approx((sigmoid(-1.5) + sigmoid(-2.5)) / 2)
    assert equal.outcome == pytest.approx(0.5), "the lean cancels"
    assert [each.parts["won"] for each in (longer, shorter)] == [1, 0]
    assert equal.parts["first_place"] == pytest.approx(2 * sigmoid(0.5) - 1)
    assert asked[:2] == [("sixsix", ANCHOR), (ANCHOR, "sixsix")]


def test_asked_in_one_order_a_preference_for_a_place_is_a_reward():
    found = [graded_texts(ANCHOR, orders="random", key=key) for key in range(20)]
    assert {round(grade.outcome, 6) for [grade], _ in found} == {round(sigmoid(lean), 6) for lean in (0.5, -0.5)}
    assert all(len(asked) == 1 for _, asked in found)


def test_certain_odds_are_probabilities_of_0_and_1():
    assert graded({True: 1e9, False: -1e9}).outcome == 1
    assert graded({True: -1e9, False: 1e9}).outcome < 1e-300


def test_tasks_without_a_completion_of_their_own_are_refused():
    one = task()
    with pytest.raises(RecipeError, match="comes with no completion to compare with"):
        WinProbability().check_tasks(Source(one))
    [grade] = asyncio.run(WinProbability().build(Source(one))(one, [leaf("a")], Context()))
    assert "no completion" in grade.reason
    for words in (("A", "A"), ("", "B")):
        with pytest.raises(ValidationError, match="allowed: one word"):
            WinProbability(words=words)
