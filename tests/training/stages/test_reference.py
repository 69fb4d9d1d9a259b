"""A reference that is an average of models: what recipes may say."""

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            "{average: [{from_stage: othre}]}",
            r"from_stage: got 'othre' \(did you mean 'other'\?\); allowed: other, own",
        ),
        ("{average: [{from_stage: ppo}]}", "from_stage: got 'ppo'"),
        ("{average: [{from_stage: other, path: base}]}", "path and from_stage: got both"),
        ("{average: []}", "average"),
        ("{average: [{path: base, share: 0}]}", "share"),
    ],
)
def test_what_cannot_be_averaged_is_refused(given, line):
    with pytest.raises(RecipeError, match=line):
        load_recipe("salsa", [f"stages.ppo.reference={given}"])


def test_a_stage_whose_model_is_not_kept_cannot_be_named():
    with pytest.raises(RecipeError, match="keep_stages"):
        load_recipe("salsa", ["keep_stages=false"])


def test_a_reference_that_nothing_reads_is_refused():
    recipe = load_recipe("grpo", ["reference={average: [policy, base]}"])
    with pytest.raises(RecipeError, match="nothing here reads a reference"):
        check(recipe)
    check(load_recipe("dpo", ["reference={average: [policy, base]}"]))
