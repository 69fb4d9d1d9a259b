"""Boxes: how they are read and compared, and sets of them matched, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.papers.ui_r1._boxes import (
    Detection,
    confidence_reward,
    edges,
    is_on,
    matched_overlaps,
    overlap,
    overlap_reward,
    read_box,
    read_detections,
    write_detections,
)


def test_overlap_and_edges():
    assert overlap((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert overlap((0, 0, 4, 2), (0, 0, 4, 2)) == 1
    assert edges((0, 0, 4, 4), (0, 0, 4, 4), 16) == 1
    # Left and right are 4 of 16 away: 4 / (1 + 1 + 1 / 0.75 + 1 / 0.75).
    assert edges((4, 0, 8, 4), (0, 0, 4, 4), 16) == pytest.approx(4 / (2 + 2 / 0.75))
    assert edges((0, 0, 16, 16), (15.9, 0, 16, 16), 15.9) == 0
    assert math.isfinite(edges((0, 0, 16, 16), (0, 0, 0.1, 0.1), 16))
    assert is_on(3, 3, (3, 3, 4, 4))
    assert not is_on(2.9, 3, (3, 3, 4, 4))


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "a,b,c,d", "1, 2,3,4", "100,2,3,4", "5,1,5,4", "-1,0,2,2"])
def test_what_is_no_box(text):
    assert read_box(text) is None


def test_a_list_is_read_as_it_is_written_and_each_place_once():
    assert write_detections([(3, 2, 7, 6), (8, 1, 10, 3)], [9, 3]) == "3,2,7,6:9;8,1,10,3:3"
    assert read_detections("3,2,7,6:9;8,1,10,3:3") == [((3, 2, 7, 6), 1), ((8, 1, 10, 3), pytest.approx(1 / 3))]
    # The first of the same place counts, as in the released code; the last would be sure of it.
    assert read_detections("3,2,7,6:0;3,2,7,6:9") == [((3, 2, 7, 6), 0)]


@pytest.mark.parametrize(
    "text",
    [
        *("", ";", "3,2,7,6", "3,2,7,6:", "3,2,7,6:10", "3,2,7,6:-1", "3,2,7,6:9;", "7,2,3,6:9", ":9", "3,2,7,6:²"),
        *("3,2,7,6:9, 1,1,2,2:9", "3,2,7:9", "3,2,7,6:9:9"),
    ],
)
def test_what_is_no_list_of_boxes(text):
    assert read_detections(text) is None


LEFT, RIGHT = (0, 0, 4, 4), (8, 0, 12, 4)


def test_each_box_takes_the_target_that_it_overlaps_most():
    # The first shares 3 x 4 of 16 + 16 - 12 = 20 with the left: 0.6. The second is the right itself.
    found = [Detection((1, 0, 5, 4), 0.5), Detection(RIGHT, 0.5)]
    assert matched_overlaps(found, [RIGHT, LEFT]) == [0.6, 1]


def test_the_most_confident_box_chooses_first_and_a_target_is_matched_once():
    close, same = Detection((1, 0, 5, 4), 0.9), Detection(LEFT, 0.1)
    assert matched_overlaps([same, close], [LEFT]) == [0, 0.6]  # an assignment of the most overlap would pay 1
    assert matched_overlaps([same, close._replace(confidence=0.1)], [LEFT]) == [1, 0]  # ties go to the first listed


def test_an_overlap_of_half_is_no_match_and_leaves_the_target():
    half = Detection((0, 0, 4, 2), 1.0)  # 8 of 16
    assert matched_overlaps([half, Detection(LEFT, 0.0)], [LEFT]) == [0, 1]
    assert matched_overlaps([half], [LEFT], threshold=0.4) == [0.5]


def test_nothing_is_matched_with_nothing():
    assert matched_overlaps([], [LEFT]) == []
    assert matched_overlaps([Detection(LEFT, 1.0)], []) == [0]


def test_missed_targets_and_boxes_of_nothing_lower_the_reward():
    assert overlap_reward([0.6, 1], 2) == 0.8
    assert overlap_reward([1], 4) == 0.25  # the paper's form would be 1
    assert overlap_reward([1, 0, 0], 1) == pytest.approx(1 / 3)
    assert overlap_reward([], 2) == 0


def test_confidence_is_paid_in_matched_boxes_and_doubt_in_others():
    found = [Detection(LEFT, 0.9), Detection(RIGHT, 0.3)]
    assert confidence_reward([0.6, 0], found) == pytest.approx((0.9 + 0.7) / 2)
    assert confidence_reward([0, 0.6], found) == pytest.approx((0.1 + 0.3) / 2)
    assert confidence_reward([], []) == 0  # nothing listed, nothing told


BOXES = st.tuples(*[st.integers(0, 8)] * 2, *[st.integers(1, 8)] * 2).map(
    lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3])
)


@given(st.lists(st.tuples(BOXES, st.integers(0, 9)), max_size=6), st.lists(BOXES, min_size=1, max_size=5, unique=True))
def test_no_set_of_boxes_is_paid_more_than_1_or_matches_more_than_there_is(listed, targets):
    found = [Detection(box, digit / 9) for box, digit in listed]
    matched = matched_overlaps(found, targets)
    assert sum(each > 0 for each in matched) <= min(len(found), len(targets))
    assert 0 <= overlap_reward(matched, len(targets)) <= 1
    assert 0 <= confidence_reward(matched, found) <= 1
