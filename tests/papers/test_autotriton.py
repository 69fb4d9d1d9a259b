import re

import pytest

from lyceum.recipe.schema import load_recipe

PATTERN = load_recipe("autotriton", []).reward[1].pattern


@pytest.mark.parametrize(
    ("program", "kept"), [("(x+3)*2", True), ("x*3+2", True), ("x", True), ("(x+x+x)+2", False), ("(x+x)*2", False)]
)
def test_the_rule_finds_a_multiplication_that_is_written_as_additions(program, kept):
    assert bool(re.fullmatch(PATTERN, program)) == kept
