import pytest
import torch
from pydantic import ValidationError

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.papers.spo.credit_spo import SPO, kept, key_of, tracked


def forest(*rewards):
    """One sample of each prompt, which are 1, 2, ..."""
    trees = []
    for prompt, reward in enumerate(rewards, start=1):
        root = Node(None, [prompt], Origin.PROMPT)
        leaf = root.add_drawn(Continuation([9], [-1.0], [-1.0], [0], "stop"))
        leaf.grade = Grade(reward)
        trees.append(Tree(Task(f"t{prompt}", ()), [root]))
    return build_forest(trees)


def test_the_estimate_is_a_beta_count_of_successes():
    # alpha = beta = 1/2, kept by 0.96: 0.48 each; two successes and one failure: 2.48 and 1.48.
    value, weight = tracked(0.5, 0.96 * 1.0, [1.0, 1.0, 0.0])
    assert weight == pytest.approx(3.96)
    assert value == pytest.approx(2.48 / 3.96)


def test_what_is_kept_halves_with_each_half_life_of_drift_within_bounds():
    assert kept(0.03, 0.06, 0.0, 1.0) == pytest.approx(2**-0.5)
    assert kept(0.12, 0.06, 0.0, 1.0) == pytest.approx(1 / 4)
    assert kept(0.12, 0.06, 0.875, 0.96) == 0.875
    assert kept(0.0, 0.06, 0.875, 0.96) == 0.96


def test_each_row_is_compared_with_its_own_prompts_past_and_not_with_the_others():
    credit = SPO(keep_low=0.0, half_life=1.0).build()
    step = forest(1.0, 0.0, 1.0)
    # Nothing is known: 1/2 -1/2 1/2, of mean 1/6 and sample standard deviation sqrt(1/3).
    before = credit(step)
    torch.testing.assert_close(before.advantage[:, 1], torch.tensor([1 / 3, -2 / 3, 1 / 3]) * 3**0.5)
    assert before.metrics["rows_tracked"] == 0
    credit.observe(step, {"drift": 0.25})
    # alpha + beta 0.96 of the prior and 1: values (0.48 + 1) / 1.96 and 0.48 / 1.96. What is expected earns less.
    high, low = 1.48 / 1.96, 0.48 / 1.96
    assert [credit.of(key_of((prompt,))).value for prompt in (1, 2, 3)] == pytest.approx([high, low, high])
    after = credit(forest(1.0, 1.0, 0.0))
    gain = torch.tensor([1 - high, 1 - low, -high])
    torch.testing.assert_close(after.advantage[:, 1], (gain - gain.mean()) / gain.std())
    assert after.metrics == {"rows_tracked": 3, "value": pytest.approx((2 * high + low) / 3)}


def test_the_policys_drift_since_the_prompt_was_last_seen_counts():
    credit = SPO(keep_low=0.0, half_life=1.0).build()
    credit.observe(forest(1.0, 1.0), {"drift": 0.25})
    credit.observe(forest(1.0), {"drift": 1.0})  # prompt 2 is not seen
    assert credit.of(key_of((1,))).weight == pytest.approx(1.96 / 2 + 1)
    assert credit.of(key_of((2,))).weight == pytest.approx(1.96)
    credit.observe(forest(1.0, 1.0), {"drift": 2.0})
    assert credit.of(key_of((1,))).weight == pytest.approx((1.96 / 2 + 1) / 4 + 1)
    assert credit.of(key_of((2,))).weight == pytest.approx(1.96 / 8 + 1)


def test_calling_it_changes_nothing_and_a_resumed_one_goes_on_alike():
    credit, resumed = SPO().build(), SPO().build()
    credit.observe(forest(1.0, 0.0), {"drift": 0.1})
    state = credit.state_dict()
    credit(forest(0.0, 1.0))
    assert credit.state_dict() == state
    resumed.load_state_dict(state)
    for each in (credit, resumed):
        each.observe(forest(1.0, 0.0), {"drift": 0.05})
    assert resumed.state_dict() == credit.state_dict()
    assert resumed(forest(1.0, 1.0)).advantage.equal(credit(forest(1.0, 1.0)).advantage)
    with pytest.raises(ValueError, match="lacks"):
        resumed.load_state_dict({"drift": 0.0})


def test_bounds_that_cross_are_refused():
    with pytest.raises(ValidationError, match=r"got 0\.97, but keep_high is 0\.96"):
        SPO(keep_low=0.97)
