import pytest
from pydantic import ValidationError

from lyceum.core.types import Judgement
from lyceum.papers.fgaif.value_several import Several, together


def test_values_above_a_half_pay_and_values_below_it_cost():
    # 2v - 1: (1, -1/2) and (0, 1) of two steps, with weights 1 and 2; outcomes 0 and 1.
    said = [Judgement(0.5, [1.0, 0.25]), Judgement(1.0, [0.5, 1.0])]
    found = together(said, (1.0, 2.0))
    assert found.steps == [1.0, 1.5]
    assert found.outcome == 2.0
    assert found.parts == {"1": 0.25, "2": 0.5}
    assert together([Judgement(0.25, [])], (1.0,)) == Judgement(-0.5, [], {})


def test_a_weight_of_0_leaves_a_kind_out():
    fine, unsure = Judgement(0.5, [1.0]), Judgement(0.5, [0.5])
    wrong = Judgement(0.5, [0.0])
    assert together([fine, unsure, wrong], (1, 1, 1)).steps == [0.0]
    assert together([fine, unsure, wrong], (1, 1, 0)).steps == [1.0]


def test_models_that_are_not_trained_or_give_no_probabilities_are_refused():
    with pytest.raises(ValidationError, match="neither from_stage nor path"):
        Several(models=({"kind": "model"},))
    with pytest.raises(ValidationError, match=r"models.0.loss: got 'pairwise'"):
        Several(models=({"from_stage": "a", "loss": "pairwise"},))
    with pytest.raises(ValidationError, match="one for each"):
        Several(models=({"from_stage": "a"},), weights=(1.0, 2.0))
