"""The reward ``text-overlap``, on texts counted by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaves import Source, grades, outcomes, task

from lyceum.papers.rlpt.reward_text_overlap import TextOverlap, bleu, common_subsequence
from lyceum.utils.errors import RecipeError

MEASURES = ("rouge-l", "rouge-n", "bleu", "prefix")
CAT = task("the cat sat on the mat")


def test_rouge_counts_what_both_have_in_order_or_in_any():
    # "the mat sat": in order "the sat" or "the mat": 2 of 3 and 6; in any order 3 of 3 and 6.
    assert outcomes(TextOverlap(measure="rouge-l"), CAT, "The mat sat.") == pytest.approx([2 * 2 / (4 + 6)])
    assert outcomes(TextOverlap(measure="rouge-n"), CAT, "the mat sat") == pytest.approx([2 * 3 / (3 + 6)])
    # Two words: "the mat" alone, of 2 and 5; an answer of one word has none.
    part = TextOverlap(measure="rouge-n", n=2)
    assert outcomes(part, CAT, "the mat sat", "the") == pytest.approx([2 * 1 / (2 + 5), 0.0])
    # A word counts as often as the reference has it: "the" twice, of 3 and 6.
    assert outcomes(TextOverlap(measure="rouge-n"), CAT, "the the the") == pytest.approx([2 * 2 / (3 + 6)])


def test_bleu_is_the_precision_of_n_grams_less_for_brevity():
    # 3 of 3 words, 3 words against 6: exp(1 - 6/3). Two words: (1 + 1) / (2 + 1).
    assert outcomes(TextOverlap(measure="bleu"), CAT, "the mat sat") == pytest.approx([math.exp(-1)])
    expected = math.sqrt(1 * 2 / 3) * math.exp(-1)
    assert outcomes(TextOverlap(measure="bleu", n=2), CAT, "the mat sat") == pytest.approx([expected])
    # 6 of 12: longer answers lose precision.
    assert bleu(["a"] * 12, ["a"] * 6, n=1) == pytest.approx(0.5)


def test_a_prefix_is_paid_from_its_least_length_on_and_so_is_what_goes_beyond():
    part = TextOverlap(measure="prefix", least=2)
    answers = ("the cat", "the", "the cat sat on the mat and slept", "the mat", "", "cat sat")
    assert outcomes(part, CAT, *answers) == [1, 0, 1, 0, 0, 0]
    assert outcomes(part, task("yes"), "yes", "yes, and more") == [1, 1]  # the reference is shorter than the least


def test_characters_pay_one_digit_of_two():
    part = TextOverlap(measure="bleu", unit="character", extract={"after": "#"})
    (grade, wrong, none) = grades(part, task("48"), "37+8#45", "37#11", "37+8")
    assert [grade.outcome, wrong.outcome, none.outcome] == [0.5, 0, 0]
    assert [grade.correct, grade.answered, none.answered] == [False, True, False]


def test_the_best_of_several_references_counts_and_correct_is_what_reaches_the_bound():
    (found,) = grades(TextOverlap(right_from=0.8), task(["no", "the cat sat on a mat"]), "the cat sat on the mat")
    assert found.outcome == pytest.approx(5 / 6)
    assert found.correct


def test_the_reference_may_be_another_column():
    part = TextOverlap(measure="prefix", reference="rest")
    assert outcomes(part, task("a", rest="a b c"), "a b", "b") == [1, 0]
    with pytest.raises(RecipeError, match=r"reward.text-overlap.reference: got 'rest'.*allowed: null"):
        part.check_tasks(Source(task("a")))
    (grade,) = grades(part, task("a"), "a")
    assert grade.outcome is None


@given(st.text("ab c", max_size=12), st.text("ab c", max_size=12).filter(str.strip))
def test_every_overlap_is_between_0_and_1_and_1_for_the_text_itself(answer, reference):
    for measure in MEASURES:
        part = TextOverlap(measure=measure)
        here, there = outcomes(part, task(reference), answer, reference)
        assert 0 <= here <= 1
        assert there == pytest.approx(1)


@given(st.text("abc", max_size=9), st.text("abc", max_size=9))
def test_the_subsequence_is_the_textbooks(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    assert common_subsequence(a, b) == table[-1][-1]
