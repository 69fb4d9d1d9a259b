"""What a policy may try instead of solving the task, and which settings resist it. Judges have tests of their own."""

import pytest
from leaves import grades, leaf, outcomes, task

from lyceum.reward.choice import Choice
from lyceum.reward.exact import Exact
from lyceum.reward.format import Format
from lyceum.reward.length_cosine import LengthCosine
from lyceum.reward.math import checker
from lyceum.reward.number import Number
from lyceum.reward.overlong import Overlong
from lyceum.reward.regex import Regex
from lyceum.reward.repetition import Repetition

ANSWERED = r"<think>\s*\S.{19,}</think>\s*<answer>[^<]+</answer>"
"""Reasoning of 20 characters or more, then an answer: what ``tags`` alone does not ask for."""


def test_answer_stuffing_is_resisted_by_maths_and_by_answers_that_must_be_the_whole_of_their_place():
    many = ", ".join(map(str, range(40, 60)))
    check = checker()
    for stuffed in (
        f"\\boxed{{{many}}}",
        r"\boxed{41 \text{ or } 42}",
        r"\boxed{41} or \boxed{42}",
        r"\boxed{41 = 42}",
    ):
        assert not check({"answers": ["42"], "found": stuffed, "boxed": False})
    box = {"extract": "boxed"}
    stuffed = f"\\boxed{{{many}, 42}}", r"\boxed{42} \boxed{41}"
    assert outcomes(Exact(**box), task("42"), *stuffed) == [0.0, 0.0]
    assert outcomes(Regex(pattern="42", workers=1, **box), task(), *stuffed) == [0.0, 0.0]
    assert outcomes(Choice(**box), task("B"), r"\boxed{A B C D}", r"\boxed{A, B}") == [0.0, 0.0]


def test_answer_stuffing_is_not_resisted_by_searching_and_by_the_last_number_of_a_whole_completion():
    # Known: a policy must still guess which comes last, or write it somewhere. Extract the answer and match it whole.
    assert outcomes(Number(), task(42), "41 or 42", "42 or 41") == [1.0, 0.0]
    assert outcomes(Regex(pattern="42", match="search", workers=1), task(), "41, 42, 43") == [1.0]


def test_format_alone_is_never_correct_and_earns_less_than_an_answer_without_it():
    parts = [Exact(extract={"tags": "answer"}), Format(tags=("think", "answer"), weight=0.2)]
    formed, bare, both = grades(
        parts,
        task("42"),
        "<think>so</think><answer>7</answer>",
        "no tags <answer>42</answer>",
        "<think>so</think><answer>42</answer>",
    )
    assert [grade.outcome for grade in (formed, bare, both)] == pytest.approx([0.2, 1.0, 1.2])
    assert [grade.correct for grade in (formed, bare, both)] == [False, True, True]


def test_empty_reasoning_has_the_tags_and_is_resisted_by_a_pattern_that_asks_for_some():
    empty = "<think></think><answer>42</answer>"
    blank = "<think>" + " \n" * 30 + "</think><answer>42</answer>"
    some = "<think>six times seven is forty-two</think><answer>42</answer>"
    assert outcomes(Format(tags=("think", "answer")), task(), empty, blank, some) == [1.0, 1.0, 1.0]
    assert outcomes(Format(pattern=ANSWERED), task(), empty, blank, some) == [0.0, 0.0, 1.0]


def test_padding_is_resisted_by_lengths_and_repetitions_that_count_and_spares_long_correct_answers():
    short, padded = leaf("42", tokens=10), leaf("42", tokens=95)
    wrong, wrong_padded = leaf("7", tokens=10), leaf("7", tokens=95)
    overlong = [Exact(), Overlong(max_tokens=100, buffer_tokens=20, weight=0.5)]
    cosine = [Exact(weight=0), LengthCosine(max_tokens=100)]
    for parts in (overlong, cosine):
        first, second = (grade.outcome for grade in grades(parts, task("42"), short, padded))
        assert first > second
        assert second > max(grade.outcome for grade in grades(parts, task("42"), wrong, wrong_padded))
    looped = grades([Exact(), Repetition(ngram=2)], task("42"), "so it is 7", "so it " * 20 + "is 7")
    assert looped[0].outcome == 0.0
    assert looped[1].outcome < -0.9
