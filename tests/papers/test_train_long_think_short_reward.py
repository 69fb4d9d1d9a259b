import pytest
from leaves import grades, leaf, outcomes, task

from lyceum.core.types import Origin
from lyceum.papers.train_long_think_short.reward_token_budget import TaskBudget, TokenBudget, length_reward
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


@pytest.mark.parametrize(
    ("length", "triangle", "band"), [(0, 0.0, 1.0), (20, 0.25, 1.0), (80, 1.0, 1.0), (100, 0.75, 0.75), (160, 0, 0)]
)
def test_the_reward_peaks_at_the_budget_and_is_gone_at_twice_of_it(length, triangle, band):
    # L = 80: 20/80 up, 1 - 20/80 down.
    assert length_reward(length, budget=80) == triangle
    assert length_reward(length, budget=80, band=True) == band


def test_far_beyond_twice_the_budget_it_does_not_turn_negative():
    assert length_reward(1000, budget=80) == 0.0


def test_each_task_has_its_own_budget():
    # 5 tokens of 10: half; of 4: one over, 3/4
    assert outcomes(TokenBudget(weight=1), task().with_note(TaskBudget(10)), "abcde") == [0.5]
    assert outcomes(TokenBudget(weight=1), task().with_note(TaskBudget(4)), "abcde") == [0.75]


def test_only_what_the_policy_wrote_is_counted():
    hinted = leaf("abcde")
    hint = hinted.path()[0].add([9] * 5, Origin.HINT, "a hint")
    hinted.parent = hint
    assert outcomes(TokenBudget(weight=1, budget_tokens=10), task(), hinted) == [0.5]


def test_a_task_without_a_budget_is_ungraded():
    [grade] = grades(TokenBudget(), task(), "abc")
    assert grade.outcome is None
    assert "no token_budget" in grade.reason


def test_the_length_says_nothing_about_being_right():
    [grade] = grades(TokenBudget(weight=1), task().with_note(TaskBudget(3)), "abc")
    assert (grade.outcome, grade.correct) == (1.0, None)


def test_a_recipe_whose_tasks_have_no_budget_is_refused():
    with pytest.raises(
        RecipeError, match=r"reward.kind: got 'token-budget' with curriculum.kind 'uniform', whose tasks"
    ):
        load_recipe("train-long-think-short", ["curriculum=uniform"])
    inside = {"kind": "knapsack", "draws": {"kind": "shrinking-budget", "template": None}}
    load_recipe("train-long-think-short", [("curriculum", inside)])
    load_recipe("grpo", [("reward", ["task", {"kind": "token-budget", "budget_tokens": 40}])])


def test_the_recipe_rewards_a_form_that_completions_have_or_have_not():
    form = load_recipe("train-long-think-short").stages[0].reward[2]
    assert (form.kind, form.weight) == ("format", 0.1)
    # All results and the answer; a wrong answer has the form as well, a result that is taken back has not.
    texts = ["37+8=45-2=43#43", "37+8=45-2=44#44", "37+8-2=43#43", "37+8=55!45-2=43#43", "37+8=45-2=43", "#43"]
    scored = outcomes(form, task(), *texts)
    assert scored == [0.1, 0.1, 0, 0, 0, 0]
