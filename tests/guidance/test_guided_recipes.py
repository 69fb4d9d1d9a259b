"""Each guided recipe trains, resumes to the same bits in its state, and refuses tasks that it cannot help with."""

import json

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check, train
from lyceum.utils.errors import RecipeError

GUIDED = {"scaf-grpo": "scaffold", "ghpo": "ghpo", "seele": "seele", "ruscarl": "rubric-scaffold"}
TINY = ["model=scratch", "steps=2", "tasks_per_step=2", "tasks.levels=[2]", "evaluate.n=0"]
SHORT = ["rollout.samples=4", "rollout.sampling.max_completion_tokens=6"]


@pytest.mark.parametrize("name", GUIDED)
def test_each_guided_method_takes_two_steps(name, tmp_path):
    path = train(load_recipe(name, [*TINY, *SHORT, f"output={tmp_path}"]))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    metrics = {key.removeprefix(f"guidance/{GUIDED[name]}/"): value for key, value in lines[1].items()}
    assert metrics["without_hints/tasks"] == 0
    # An untrained model solves nothing: every group is hinted to the end.
    if name == "scaf-grpo":
        assert metrics["groups/guided"] == metrics["solved_by/nothing"] == metrics["samples/planning"] == 2
    if name == "ghpo":
        assert metrics["groups/guided"] == metrics["solved_at/nothing"] == metrics["tried/0.5"] == 2
    if name == "seele":
        assert metrics["share/round_4"] == 0.5
    if name == "ruscarl":
        assert lines[0]["guidance/rubric-scaffold/shown/mean"] > 0
        assert metrics["shown/mean"] == 0, "half way through the stage the criteria are gone"


@pytest.mark.parametrize("name", GUIDED)
def test_tasks_without_help_are_refused_before_a_model_is_loaded(name):
    recipe = load_recipe(name, ["tasks=reasoning-gym:chain_sum", "model=nowhere", "evaluate.n=0"])
    with pytest.raises(RecipeError, match=r"hints|solution|criteria"):
        check(recipe)
