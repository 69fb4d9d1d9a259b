"""Boxes on a screen: how they are read, how far two agree, and how a set of them is matched with another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in units."""

SUREST = 9
"""A confidence is written as a digit: 0 is none, this one is full."""


class Detection(NamedTuple):
    """A box that an answer lists, and the confidence, 0 to 1, that something is there."""

    box: Box
    confidence: float


def read_numbers(text: str, n: int) -> Sequence[int] | None:
    """So many numbers of one or two digits with commas between them; None where the text is anything else."""
    return [int(digits) for digits in text.split(",")] if re.fullmatch(rf"\d\d?(,\d\d?){{{n - 1}}}", text) else None


def read_box(text: str) -> Box | None:
    """The edges that a text names; None where they are no box."""
    found = read_numbers(text, 4)
    if found is None or not (found[0] < found[2] and found[1] < found[3]):
        return None
    return found[0], found[1], found[2], found[3]


def write_detections(boxes: Sequence[Box], confidence: Sequence[int]) -> str:
    """``3,2,7,6:9;8,1,10,3:5``: boxes, each with a digit of confidence."""
    return ";".join(f"{','.join(map(str, box))}:{digit}" for box, digit in zip(boxes, confidence, strict=True))


def read_detections(text: str) -> list[Detection] | None:
    """What a list of boxes names, each place once; None where any of it is no box with a digit.

    A box that is listed again is left out, with its confidence, as in Visual-RFT's released code.
    """
    found: dict[Box, float] = {}
    for entry in text.split(";"):
        edges_of, mark, digit = entry.partition(":")
        box = read_box(edges_of)
        if box is None or not mark or not re.fullmatch("[0-9]", digit):
            return None
        found.setdefault(box, int(digit) / SUREST)
    return [Detection(box, confidence) for box, confidence in found.items()]


def is_on(x: float, y: float, box: Box) -> bool:
    """Whether a point is in a box, its edges included."""
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def overlap(a: Box, b: Box) -> float:
    """Area that two boxes share over the area of both, 0 to 1."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, width) * max(0.0, height)
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)) - shared
    return shared / both


def edges(found: Box, target: Box, side: float) -> float:
    """How close the four edges of a box are to another's: the harmonic mean of 1 - distance / side.

    Args:
        side: of the screen, in the boxes' unit.
    Returns:
        0 to 1; 0 where an edge is as far away as the screen is wide.
    Source:
        GUI-G1, arXiv:2505.15810, and its released code (``box_reward``).
    """
    near = [max(0.0, 1 - abs(a - b) / side) for a, b in zip(found, target, strict=True)]
    return 0.0 if min(near) == 0 else len(near) / sum(1 / each for each in near)


def matched_overlaps(found: Sequence[Detection], targets: Sequence[Box], *, threshold: float = 0.5) -> list[float]:
    """The overlap of each listed box with the target that it is matched with; 0 where it is matched with none.

    The most confident box chooses first (ties: the first listed): of the targets that are left, the one that it
    overlaps most, if by more than the threshold.

    Args:
        found: boxes that an answer lists.
        targets: boxes that are there, different ones.
        threshold: overlap, 0 to 1, that a match has to exceed.
    Returns:
        Overlaps in the order of ``found``, 0 to 1.
    Source:
        Visual-RFT, arXiv:2503.01785, and its released code (``sort_and_calculate_iou``).
    """
    left = list(targets)
    matched = [0.0] * len(found)
    for i in sorted(range(len(found)), key=lambda i: -found[i].confidence):
        best = max(left, key=lambda target: overlap(found[i].box, target), default=None)
        if best is not None and overlap(found[i].box, best) > threshold:
            matched[i] = overlap(found[i].box, best)
            left.remove(best)
    return matched


def overlap_reward(matched: Sequence[float], n_targets: int) -> float:
    """Mean overlap of a set of boxes with what is there; a missed target and a box of nothing each count as 0.

        sum_i o_i / max(boxes listed, targets)

    Args:
        matched: o, from :func:`matched_overlaps`.
        n_targets: at least 1.
    Returns:
        0 to 1.
    Source:
        Visual-RFT's released code (``compute_reward_iou_v2``). The paper, arXiv:2503.01785, divides by the boxes
        listed, so that one box pays as much as all.
    """
    return sum(matched) / max(len(matched), n_targets)


def confidence_reward(matched: Sequence[float], found: Sequence[Detection]) -> float:
    """How well the confidences tell boxes of something from boxes of nothing.

        mean_i of c_i where box i is matched, of 1 - c_i where it is not

    Returns:
        0 to 1; 0 where no box is listed.
    Source:
        Visual-RFT, arXiv:2503.01785, and its released code (``compute_reward_confidence``).
    """
    told = [c if o > 0 else 1 - c for o, (_, c) in zip(matched, found, strict=True)]
    return sum(told) / len(told) if told else 0.0
