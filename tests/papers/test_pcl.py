import pytest
import torch
from levelled import Source, assert_resumes, graded
from tiny_models import plain_model, policy_like

from lyceum.core.types import Task
from lyceum.papers.pcl.curriculum_prompt_value import PromptValue, PromptValueModel, nearest_to
from lyceum.utils.errors import RecipeError
from lyceum.value.targets import explained_variance


def policy(seed=0):
    return policy_like(plain_model(seed=seed))


def build(seed=0, *, like=None, source=None, **settings):
    return PromptValue(**settings).build(source or Source(60), seed=seed, policy=like or policy())


def model(own=True, lr=0.01, start=0.5, like=None):
    return PromptValueModel(like or policy(), own=own, lr=lr, start=start)


def asks(*texts):
    return [({"role": "user", "content": text},) for text in texts]


def test_those_nearest_to_the_target_are_picked_in_the_order_drawn():
    # Distances 0.4, 0.1, 0.3, 0.05, 0.1: of the two at 0.1 both fit in three, and the first comes first in two.
    values = [0.9, 0.6, 0.2, 0.45, 0.4]
    assert nearest_to(0.5, values, 3) == [1, 3, 4]
    assert nearest_to(0.5, [0.9, 0.625, 0.2, 0.45, 0.375], 2) == [1, 3]
    assert nearest_to(0.9, values, 1) == [0]


def test_the_share_of_the_spread_that_is_predicted():
    # Actual spread: mean 0.5, variance 0.25. Errors +-0.25: variance 0.0625, a quarter of it.
    assert explained_variance([0.25, 0.75], [0.0, 1.0]) == 0.75
    # A constant error costs nothing here: the order is what picks prompts.
    assert explained_variance([0.5, 1.5], [0.0, 1.0]) == 1.0
    assert explained_variance([0.1, 0.9], [0.5, 0.5]) is None


def test_before_anything_was_learnt_all_values_are_the_target():
    assert model(start=0.3).values(asks("1+1=", "99+99="), 100) == pytest.approx([0.3, 0.3])


def test_a_prompts_value_does_not_depend_on_what_else_is_read_with_it():
    values = model()
    values.regress(asks("1+1=", "22+1=", "5="), [1.0, 0.0, 0.4], 100)
    together = values.values(asks("1+1=", "22+1=", "5="), 1000)
    assert len(set(together)) == 3
    for text, value in zip(("1+1=", "22+1=", "5="), together, strict=True):
        assert values.values(asks(text), 1000) == pytest.approx([value], abs=1e-5)
    assert values.values(asks("1+1=", "22+1=", "5="), 1) == pytest.approx(together, abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 1000])
def test_one_update_is_of_the_mean_squared_error_however_it_is_cut(tokens):
    # The head's bias alone, from 0.5: d/db mean (V - t)^2 = mean 2 (0.5 - t) = (2 * 0.5 + 2 * -0.25) / 2 = 0.25.
    values = model(own=False)
    values.optimizer = torch.optim.SGD(values.parameters, lr=1.0)
    values.regress(asks("1+1=", "22+1="), [0.0, 0.75], tokens)
    assert values.head.bias.item() == pytest.approx(0.25)


def test_it_learns_which_prompts_are_solved():
    values = model(lr=0.003)
    # They end alike: what tells them apart is what stands before, which the body has to carry to the last token.
    easy, hard = asks("1+1=", "2+1=", "3+1="), asks("91-7+1=", "85+9+1=", "77-1+1=")
    for _ in range(40):
        values.regress([*easy, *hard], [1.0] * 3 + [0.0] * 3, 1000)
    assert min(values.values(easy, 1000)) > 0.8
    assert max(values.values(hard, 1000)) < 0.2


def test_its_own_body_is_trained_and_the_policys_is_not():
    ours = policy()
    before = [p.clone() for p in ours.module.parameters()]
    values = model(like=ours)
    for _ in range(2):  # the head is 0 at first: only then does the body feel anything
        values.regress(asks("1+1="), [1.0], 100)
    assert all(torch.equal(a, b) for a, b in zip(before, ours.module.parameters(), strict=True))
    theirs = list(values.reader.module.parameters())
    assert not all(torch.equal(a, b) for a, b in zip(before, theirs, strict=True))


def test_a_head_on_the_policy_leaves_it_alone_and_follows_it():
    ours = policy()
    values = model(own=False, like=ours)
    values.regress(asks("1+1=", "7="), [1.0, 0.0], 100)
    assert all(p.grad is None for p in ours.module.parameters())
    before = values.values(asks("1+1="), 100)
    with torch.no_grad():
        next(ours.backbone.parameters()).mul_(1.5)
    assert values.values(asks("1+1="), 100) != before


class Oracle:
    """Knows each prompt's value: its number over 100."""

    def __init__(self):
        self.learnt = []

    def values(self, prompts, tokens):
        return [int(messages[0]["content"].split("+")[0]) / 100 for messages in prompts]

    def regress(self, prompts, targets, tokens):
        self.learnt.append(([messages[0]["content"] for messages in prompts], list(targets)))


def test_of_a_pool_those_in_the_middle_are_drawn_and_learnt_from():
    curriculum = build(source=Source(100), pool=5, epochs=2)
    curriculum.model = Oracle()
    tasks = curriculum.draw(20)  # the pool is the whole epoch: 0.00 to 0.99
    numbers = {int(task.id) for task in tasks}
    assert numbers in ({*range(41, 60), 40}, {*range(41, 60), 60})  # 40 and 60 are as far from 50
    trees = [graded(task, [True, True, False, None]) for task in tasks[:1]] + [graded(tasks[1], [None])]
    curriculum.observe(trees)
    # 2 of 3 graded ones are right; what nobody could grade teaches nothing.
    assert curriculum.model.learnt == [([f"{tasks[0].id}+1="], [2 / 3])] * 2
    metrics = curriculum.metrics()
    assert metrics["value/pool"] == pytest.approx(0.495)
    assert metrics["value/picked"] == pytest.approx(int(tasks[0].id) / 100)
    assert metrics["solved/picked"] == pytest.approx(2 / 3)


def test_rewards_without_a_verdict_are_learnt_as_they_are():
    curriculum = build()
    curriculum.model = Oracle()
    curriculum.observe([graded(Task("1", asks("1+1=")[0]), [0.25, 0.75])])
    assert curriculum.model.learnt == [(["1+1="], [0.5])]


@pytest.mark.parametrize("body", ["own", "policy"])
def test_a_resumed_run_draws_what_the_first_would_have(body):
    ours = policy()
    first = build(1, like=ours, pool=3, lr=0.01, body=body)
    for _ in range(2):
        first.observe([graded(task, [int(task.id) % 2 == 0, True]) for task in first.draw(4)])
    # The other one's policy has gone on, as when a checkpoint is loaded after the model: an own body is the saved one.
    other = policy(seed=3) if body == "own" else ours
    assert_resumes(first, build(2, like=other, pool=3, lr=0.01, body=body), [graded(Source()[5], [True, False])])


def test_it_needs_a_policy():
    with pytest.raises(ValueError, match="reads prompts with the policy"):
        PromptValue().build(Source(), seed=0)


def test_what_it_wraps_is_checked():
    with pytest.raises(RecipeError, match="column 'level'"):
        PromptValue.model_validate({"draws": "dump"}).check_tasks(Source(column="other"))
