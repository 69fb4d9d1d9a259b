"""Each guided recipe refuses tasks that it cannot help with."""

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError

GUIDED = ["scaf-grpo", "ghpo", "seele", "ruscarl", "ampo", "dr-po"]


@pytest.mark.parametrize("name", GUIDED)
def test_tasks_without_help_are_refused_before_a_model_is_loaded(name):
    recipe = load_recipe(name, ["tasks=reasoning-gym:chain_sum", "model=nowhere", "evaluate.n=0"])
    with pytest.raises(RecipeError, match=r"hints|solution|criteria|demonstration"):
        check(recipe)
