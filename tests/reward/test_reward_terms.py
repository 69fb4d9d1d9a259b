import torch

from lyceum.core.types import Grade
from lyceum.reward.base import RewardTerm, add_up
from lyceum.reward.format import Format
from lyceum.reward.task import TaskReward
from lyceum.reward.terms import OTHER, terms


def rows(parts, *values):
    """The outcomes of rows with these values of the parts, and what they are made of."""
    joined = {name: RewardTerm(part.weight, part.combine, part.passes_at) for name, part in parts.items()}
    graded = [{n: joined[n].prepared([Grade(float(v))])[0] for n, v in zip(parts, row, strict=True)} for row in values]
    grades = [add_up(of, list(joined.values())) for of in graded]
    found = {name: torch.tensor([grade.parts[name] for grade in grades]) for name in grades[0].parts}
    return found, torch.tensor([grade.outcome for grade in grades])


def listed(found):
    return {name: [round(x, 6) for x in term.tolist()] for name, term in found.items()}


def test_terms_are_weighted_parts():
    parts = {"task": TaskReward(), "format": Format(pattern="x", weight=0.5)}
    found, outcome = rows(parts, (1, 1), (1, 0), (0, 1))
    assert listed(terms(parts, found, outcome)) == {"task": [1, 1, 0], "format": [0.5, 0, 0.5]}


def test_what_multiplies_adds_what_it_takes_away():
    # 1 + 0.5 (0 - 1) = 1/2 of the sum.
    parts = {"half": Format(pattern="x", weight=0.5, combine="multiply"), "task": TaskReward()}
    found, outcome = rows(parts, (1, 1), (0, 1), (0, 0))
    assert outcome.tolist() == [1, 0.5, 0]
    assert listed(terms(parts, found, outcome)) == {"half": [0, -0.5, 0], "task": [1, 1, 0]}


def test_a_gate_that_fails_takes_the_others_away_and_the_first_decides():
    # Fails below 1: the outcome is then twice, or three times, its own value of 0.5 or 0.
    first, second = (Format(pattern="x", weight=weight, combine="gate") for weight in (2.0, 3.0))
    parts = {"task": TaskReward(), "first": first, "second": second}
    found, outcome = rows(parts, (1, 1, 1), (1, 0.5, 0), (1, 1, 0))
    assert outcome.tolist() == [1, 1, 0]
    assert listed(terms(parts, found, outcome)) == {"task": [1, 1, 1], "first": [0, 0, 0], "second": [0, 0, -1]}


def test_weights_are_those_of_the_step_and_what_no_part_gave_is_other():
    parts = {"task": TaskReward(), "format": Format(pattern="x", weight=0.5)}
    found = {"task": torch.tensor([1.0, 0]), "format": torch.tensor([1.0, float("nan")])}
    found["format/weight"] = torch.tensor([0.25, 0.25])
    assert listed(terms(parts, found, torch.tensor([1.25, 2.0]))) == {
        "task": [1, 0],
        "format": [0.25, 0],
        OTHER: [0, 2],
    }
