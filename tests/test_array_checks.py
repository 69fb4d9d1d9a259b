"""What annotations say of arrays is checked while tests run: of functions and of dataclasses."""

from __future__ import annotations

import array_checks
import pytest
import torch
from beartype.roar import BeartypeCallHintParamViolation

from lyceum.credit.group import group_relative
from lyceum.models.tree_attention import _Chains


@pytest.fixture(autouse=True)
def every_call(monkeypatch):
    monkeypatch.setattr(array_checks, "ALWAYS", 10**9)


def test_arrays_of_shapes_that_do_not_fit_are_refused():
    group = torch.tensor([0, 0])
    group_relative(torch.tensor([0.0, 1.0]), group)
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter group="):
        group_relative(torch.tensor([0.0, 1.0, 2.0]), group)


def test_arrays_of_another_kind_of_number_are_refused():
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter reward="):
        group_relative(torch.tensor([0, 1]), torch.tensor([0, 0]))


def test_fields_of_dataclasses_are_checked_too():
    query = torch.zeros(2, 3, dtype=torch.long)
    _Chains(query, torch.zeros(2, 5, dtype=torch.long), query, [0, 0], [5, 5])
    with pytest.raises(BeartypeCallHintParamViolation, match="parameter query_position="):
        _Chains(query, torch.zeros(2, 5, dtype=torch.long), query[:, 1:], [0, 0], [5, 5])
