import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.component import kinds
from lyceum.objective.base import aggregate_weights

# rows of 3 tokens, 1 token, and none
MASK = torch.tensor([[1, 1, 1], [0, 1, 0], [0, 0, 0]]).bool()


def test_token_counts_every_token_the_same():
    torch.testing.assert_close(aggregate_weights(MASK, "token"), torch.tensor([[1.0, 1, 1], [0, 1, 0], [0, 0, 0]]) / 4)


def test_sequence_counts_every_row_the_same():
    # two rows have tokens; counting the empty one too would make a third of each
    expected = torch.tensor([[1 / 6, 1 / 6, 1 / 6], [0, 1 / 2, 0], [0, 0, 0]])
    torch.testing.assert_close(aggregate_weights(MASK, "sequence"), expected)


def test_constant_is_blind_to_length():
    # 2 rows of at most 5
    expected = torch.tensor([[1.0, 1, 1], [0, 1, 0], [0, 0, 0]]) / 10
    torch.testing.assert_close(aggregate_weights(MASK, "constant", 5), expected)


def test_constant_without_a_constant_is_refused():
    with pytest.raises(ValueError, match="needs a constant"):
        aggregate_weights(MASK, "constant")
    for kind in (kind for kind in kinds("objective").values() if "aggregate" in kind.model_fields):
        with pytest.raises(ValueError, match="constant: got None with aggregate 'constant'"):
            kind(aggregate="constant")
        with pytest.raises(ValueError, match="constant: got 5 with aggregate 'token'"):
            kind(aggregate="token", constant=5)


@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(1, 9))
def test_shares_sum_to_1_or_to_the_mean_length_over_the_constant(mask, constant):
    mask = torch.tensor(mask)
    some, rows = mask.any(), mask.any(1).sum()
    for how in ("token", "sequence"):
        torch.testing.assert_close(aggregate_weights(mask, how).sum(), some.float())
    expected = mask.sum() / (rows.clamp(min=1) * constant)
    torch.testing.assert_close(aggregate_weights(mask, "constant", constant).sum(), expected)
