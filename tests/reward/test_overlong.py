import math

import pytest
import torch
from leaves import Source, grades, leaf, task

from lyceum.core.types import Grade
from lyceum.credit.group import group_relative
from lyceum.recipe.schema import load_recipe


def outcomes_of(recipe: str) -> list[float]:
    """By the recipe's reward, of a group of 8: four right, the first of them at the limit, and four wrong."""

    async def by_text(one, leaves, context):
        return [Grade(float(node.completion == "right"), node.completion == "right") for node in leaves]

    source = Source(task(), by_text)
    group = [leaf("right", tokens=80), *[leaf("right", tokens=20)] * 3, *[leaf("wrong", tokens=20)] * 4]
    return [grade.outcome for grade in grades(load_recipe(recipe).reward, source.one, *group, source=source)]


@pytest.mark.parametrize("recipe", ["dapo", "cure"])
def test_a_right_answer_at_the_limit_is_still_pushed_up(recipe):
    outcomes = outcomes_of(recipe)
    assert outcomes == [0.5, 1, 1, 1, 0, 0, 0, 0]
    reward, group = torch.tensor(outcomes), torch.zeros(8, dtype=torch.long)
    # Mean 7/16. Squares of 1/16 once, 9/16 thrice, 7/16 four times: (1 + 243 + 196) / 256 = 55/32. By n that is a
    # variance of 55/256: 1/16 over sqrt(55)/16. A whole punishment would give 0 for the right answer, and -0.775.
    credit = load_recipe(recipe).stages[0].credit
    shipped = group_relative(reward, group, scale=credit.scale, ddof=credit.ddof)
    assert shipped[0].item() == pytest.approx(1 / math.sqrt(55), abs=1e-5)
    # By n - 1, as verl divides: 1/16 over sqrt(55/224) = +0.126 (-0.725). The paper's rewards, twice as far apart
    # and punished by a whole 1, give the same.
    of_papers = torch.tensor([0.0, 1, 1, 1, -1, -1, -1, -1])
    for rewards in (reward, of_papers):
        assert group_relative(rewards, group, ddof=1)[0].item() == pytest.approx(0.126, abs=5e-4)
