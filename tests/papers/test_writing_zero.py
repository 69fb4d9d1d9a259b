"""A judge that prefers the longer text, and one that always prefers what it is shown first."""

import asyncio
import re

import pytest
from judges import JudgeContext, Server, says
from leaves import Source, task
from leaves import leaf as leaf_of

from lyceum.core.settings import Composition
from lyceum.papers.writing_zero.reward_brpo import Brpo
from lyceum.reward.base import combine
from lyceum.rollout.flat import Flat


def leaves_of(*texts):
    found = [leaf_of(text) for text in texts]
    for number, leaf in enumerate(found):
        leaf.address = number + 1
    return found


def longer(prompt):
    first, second = re.search(r"Answer A:\n(.*?)\n\nAnswer B:\n(.*?)\n</data", prompt, re.S).groups()
    return "better: A" if len(first) > len(second) else "better: B"


def graded(*texts, judge=longer, key="run", **settings):
    """(grades, grader, number of the reference)"""
    one, context = task(), JudgeContext(judge, key=key)
    grader = combine([Brpo(**settings)], Source(one))
    grades = asyncio.run(grader(one, leaves_of(*texts), context))
    grader.observe([])
    chosen = [i for i, grade in enumerate(grades) if grade.parts.get("brpo/reference")]
    return grades, grader, *chosen


@pytest.mark.parametrize("key", range(6))
@pytest.mark.parametrize("orders", ["random", "both"])
def test_each_completion_earns_by_its_comparison_with_one_of_the_group(key, orders):
    texts = ["a", "bb", "ccc", "dddd"]
    grades, grader, reference = graded(*texts, key=key, orders=orders)
    # 1 for those longer than the reference, -1 for the shorter ones, 0 for itself.
    assert [grade.outcome for grade in grades] == [(i > reference) - (i < reference) for i in range(4)]
    assert grader.metrics()["brpo/pairs/compared"] == 3
    assert grader.metrics()["brpo/judge/asked"] == (3 if orders == "random" else 6)


def test_the_reference_is_drawn_anew_for_each_group():
    assert {graded("a", "bb", "ccc", "dddd", key=key)[2] for key in range(40)} == {0, 1, 2, 3}


def test_a_judge_that_prefers_a_place_decides_nothing_where_both_orders_are_asked():
    def first(prompt):
        return "better: A"

    grades, grader, _ = graded("a", "bb", "ccc", judge=first, orders="both")
    assert [grade.outcome for grade in grades] == [0.0, 0.0, 0.0]
    assert grader.metrics()["brpo/first/share"] == 1.0
    assert grader.metrics()["brpo/pairs/tied"] == 2
    # Asked once, its preference is a reward, for whoever was shown first.
    orders = [grade.outcome for key in range(20) for grade in graded("a", "bb", judge=first, key=key)[0]]
    assert set(orders) == {-1.0, 0.0, 1.0}


def test_a_text_equal_to_the_reference_is_a_tie_without_a_question():
    grades, grader, _ = graded("same", "same")
    assert [grade.outcome for grade in grades] == [0.0, 0.0]
    assert grader.metrics()["brpo/judge/asked"] == 0


def test_what_the_judge_cannot_say_is_ungraded_and_the_others_are_not():
    def unsure(prompt):
        return "better: neither" if "ccc" in prompt else longer(prompt)

    for key in range(10):
        grades, grader, reference = graded("a", "bb", "ccc", judge=unsure, key=key)
        ungraded = [grade.outcome is None for grade in grades]
        expected = [True, True, False] if reference == 2 else [False, False, True]
        assert ungraded == expected
        assert grader.metrics()["brpo/judge/unread"] == sum(expected)


def test_alone_there_is_nothing_to_compare_with():
    one = task()
    grader = combine([Brpo()], Source(one))
    [grade] = asyncio.run(grader(one, leaves_of("a"), JudgeContext(longer)))
    assert "no other completion" in grade.reason
    assert "compares the samples of a task" in Brpo().conflicts(Composition(rollout=Flat(samples=1)))[0]


def test_an_endpoint_compares_and_what_it_is_asked_is_bounded(tmp_path):
    def compare(body):
        return says(longer(body["messages"][0]["content"]))

    with Server(compare) as server:
        endpoint = {"url": server.url, "model": "m", "most_calls": 2, "concurrent": 1}
        one, context = task(), JudgeContext()
        context.folder = tmp_path
        grader = combine([Brpo(judge={"endpoint": endpoint})], Source(one))
        grades = asyncio.run(grader(one, leaves_of("a", "bb", "ccc", "dddd"), context))
        assert sum(grade.outcome is None for grade in grades) == 1
        assert any("2 calls are spent" in (grade.reason or "") for grade in grades)
        assert len(server.asked) == 2
