"""Choosing by votes and values, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.analysis.test_time.choice import CHOICES, Candidate, best, first, majority, weighted_majority


def of(*pairs):
    return [Candidate(answer, value) for answer, value in pairs]


def test_the_four_choices_by_hand():
    # 7 twice (0.3 + 0.3), 8 once (0.7), 9 twice (0.1 + 0.65). Best: the 8. Most votes: 7 and 9, 7 was found first.
    # Sums: 0.6, 0.7, 0.75: 9, of which the one worth 0.65 is taken. Means instead of sums would give 8.
    found = of(("7", 0.3), ("9", 0.1), ("8", 0.7), ("7", 0.3), ("9", 0.65))
    assert [choose(found) for choose in (first, best, majority, weighted_majority)] == [0, 2, 0, 4]


def test_who_says_nothing_does_not_vote():
    silent = of((None, 0.9), (None, 0.95), ("3", 0.1))
    assert majority(silent) == 2
    assert weighted_majority(silent) == 2
    assert best(silent) == 1
    nobody = of((None, 0.2), (None, 0.4))
    assert majority(nobody) == 0
    assert weighted_majority(nobody) == 1


def test_values_of_zero_still_choose():
    assert weighted_majority(of(("3", 0.0), ("4", 0.0))) == 0


def test_what_has_no_value_cannot_be_ranked():
    assert majority(of(("3", None), ("4", None), ("4", None))) == 1
    for choose in (best, weighted_majority):
        with pytest.raises(ValueError, match="without a value"):
            choose(of(("3", None)))


@given(st.lists(st.tuples(st.sampled_from(["1", "2", "3", None]), st.floats(0, 1)), min_size=1, max_size=8))
def test_a_choice_is_one_of_the_candidates_and_equal_values_make_votes_of_weights(pairs):
    found = of(*pairs)
    for choose in CHOICES.values():
        assert 0 <= choose(found) < len(found)
    same = [Candidate(candidate.answer, 0.5) for candidate in found]
    assert same[weighted_majority(same)].answer == same[majority(same)].answer
