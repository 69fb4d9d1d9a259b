import pytest
from pydantic import ValidationError

from lyceum.recipe.schema import load_recipe
from lyceum.stages.stopping import Ending, Until, UntilHeldOut
from lyceum.utils.errors import RecipeError


def seen(settings, *shares):
    ending = Ending(settings)
    ends = []
    for share in shares:
        ending.observe({"correct/mean": share, "heldout/overall": 1.0})
        ends.append(ending.reached)
    return ends


def test_a_stage_ends_when_a_whole_window_is_solved_well_enough():
    # windows of 2: (.9) too short, (.9 .6) .75, (.6 1) .8
    assert seen(Until(solved=0.8, window=2), 0.9, 0.6, 1.0) == [False, False, True]


def test_a_stage_ends_when_a_window_is_no_better_than_the_one_before():
    # means .1 -> .3 (rises by .2), then .2 -> .3, then .2 -> .25
    assert seen(Until(least_rise=0.1, window=2), 0.0, 0.2, 0.2, 0.4, 0.1) == [False] * 3 + [False, True]


def test_a_step_that_nobody_judged_does_not_count():
    assert seen(Until(solved=0.5, window=1), None, 0.5) == [False, True]


def test_without_a_rule_nothing_ends_early():
    assert seen(None, 1.0, 1.0) == [False, False]


def test_a_resumed_stage_remembers_its_windows():
    first, second = (Ending(Until(solved=0.8, window=2)) for _ in range(2))
    first.observe({"correct/mean": 0.9})
    second.load_state_dict(first.state_dict())
    second.observe({"correct/mean": 0.9})
    assert second.reached


def test_held_out_accuracy_is_of_the_steps_that_evaluate():
    ending = Ending(UntilHeldOut(least_rise=0.1, window=1))
    for metrics in ({"heldout/overall": 0.5}, {"correct/mean": 0.0}, {"heldout/overall": 0.5625}):
        assert not ending.reached
        ending.observe(metrics)
    assert ending.why == "held-out accuracy (mean of 1) rose by 0.0625 (until.least_rise=0.1)"


def test_a_rule_that_can_never_end_a_stage_is_refused():
    with pytest.raises(ValidationError, match="neither solved nor least_rise"):
        Until()
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Until(solved=1.2)
    with pytest.raises(RecipeError, match=r"until\.window: got 30"):
        load_recipe("grpo", ["steps=60", "until.least_rise=0.01", "until.window=30"])
    assert load_recipe("grpo", ["steps=61", "until.least_rise=0.01", "until.window=30"])
