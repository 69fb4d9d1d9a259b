import pytest
from levelled import Source, assert_resumes, tree_of
from tiny_models import plain_model, policy_like

from lyceum.papers.train_long_think_short.curriculum_shrinking_budget import ShrinkingBudget, token_budget
from lyceum.papers.train_long_think_short.reward_token_budget import TaskBudget
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def build(seed=0, **settings):
    return ShrinkingBudget(**settings).build(Source(60), seed=seed)


def test_the_papers_schedule():
    # 256 * 0.7 = 179.2, * 0.7 = 125.44, * 0.7 = 87.808: rounded down, as the paper's metrics have them.
    steps = (0, 149, 150, 299, 300, 449, 450, 600)
    budgets = [token_budget(t, start=256, decay=0.7, every=150) for t in steps]
    assert budgets == [256, 256, 179, 179, 125, 125, 87, 61]


def test_a_linear_schedule_takes_the_same_away_each_time():
    # 100 * 0.2 = 20 tokens each time
    budgets = [token_budget(t, start=100, decay=0.8, every=1, least=30, linear=True) for t in range(6)]
    assert budgets == [100, 80, 60, 40, 30, 30]


def test_a_budget_that_is_whole_but_for_its_last_bit_is_whole():
    assert 100 * 0.29 < 29  # in floating point
    assert token_budget(1, start=100, decay=0.29, every=1) == 29


def test_the_budget_never_falls_below_one_token():
    assert token_budget(10_000, start=256, decay=0.7, every=1) == 1


def test_the_prompt_and_the_columns_say_the_budget_of_the_step():
    curriculum = build(start_tokens=100, decay=0.5, every_steps=2)
    for budget in (100, 100, 50, 50, 25):
        [task] = curriculum.draw(1)
        assert task.note(TaskBudget).tokens == budget
        assert task.columns["level"] in (1, 2)
        question, line = task.messages[-1]["content"].split("\n")
        assert question == f"{task.id}+1="
        assert line == f"IMPORTANT: You should use exactly {budget} tokens in your response."
        curriculum.observe([])
        assert curriculum.metrics() == {"tokens/budget": budget}


def test_without_a_template_the_prompt_stays():
    [task] = build(template=None).draw(1)
    assert task.messages == Source()[int(task.id)].messages
    assert task.note(TaskBudget).tokens == 256


def test_the_recipe_tells_the_budget_of_the_step_in_a_form_that_its_model_reads():
    recipe = load_recipe("train-long-think-short")
    source = recipe.tasks.build("train", 0)
    curriculum = recipe.stages[0].curriculum.build(source, seed=0)
    for _ in range(15):
        [task] = curriculum.draw(1)
        assert task.messages[-1]["content"].endswith(":80="), "where a chain's hints stand"
        assert task.note(TaskBudget).tokens == 80
        assert task.hint is None, "it is no help with the task"
        curriculum.observe([])
    [task] = curriculum.draw(1)
    assert task.messages[-1]["content"].endswith(":56=")


def test_a_template_without_the_budget_is_refused():
    with pytest.raises(RecipeError, match=r"curriculum.template: got 'Be brief.'; allowed: a text with {token_budget}"):
        load_recipe("train-long-think-short", ["curriculum.template='Be brief.'"])


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1, every_steps=2)
    for _ in range(3):
        first.draw(5)
        first.observe([])
    assert_resumes(first, build(2, every_steps=2), [tree_of(1)])


def test_a_template_that_the_vocabulary_cannot_write_is_refused():
    policy = policy_like(plain_model())
    settings = ShrinkingBudget(template="Höchstens {token_budget} – nicht mehr")
    with pytest.raises(RecipeError, match=r"curriculum.template: got 'Höchstens .*the model's vocabulary has no ö –"):
        settings.build(Source(60), seed=0, policy=policy)
    ShrinkingBudget().build(Source(60), seed=0, policy=policy)
    ShrinkingBudget(template=None).build(Source(60), seed=0, policy=policy)
