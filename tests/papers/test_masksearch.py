import pytest
from leaves import leaf
from pydantic import ValidationError

from lyceum.papers.masksearch.tasks_masked_chains import MaskedChains, grade, make_task

TASK = make_task("t", 37, [8, -2, 5], [0, 2])


def test_masked_results_are_looked_up_one_by_one_and_answered_in_order():
    assert TASK.messages[-1]["content"] == "37+8=_-2=43+5=_:"
    assert TASK.columns["demonstration"] == "37+8=45;43+5=48#45,48"
    assert TASK.columns["level"] == 2


@pytest.mark.parametrize(
    ("said", "outcome", "recall"),
    [("#45,48", 1, 1), ("#45,47", 0, 0.5), ("#48,45", 0, 0), ("#45", 0, 0.5), ("45,48", 0, 0)],
)
def test_all_masks_have_to_be_filled_in_and_their_share_is_told(said, outcome, recall):
    found = grade(TASK, leaf(said))
    assert (found.outcome, found.parts["recall"]) == (outcome, recall)


def test_there_are_no_more_masks_than_results():
    with pytest.raises(ValidationError, match="levels: got 4 with 2 operations; allowed: at most that"):
        MaskedChains(operations=2)


def test_demonstrations_are_correct():
    source = MaskedChains().build("train", 0)
    assert all(grade(task, leaf(task.columns["demonstration"])).correct for task in (source[i] for i in range(20)))
