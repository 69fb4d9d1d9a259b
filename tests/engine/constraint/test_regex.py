import re

import pytest
from pydantic import ValidationError
from under_masks import draw, policy_of

from lyceum.engine.constraint.regex import RegexConstraint
from lyceum.utils.errors import RecipeError


def test_what_is_drawn_matches_the_expression_as_a_whole():
    policy, pattern = policy_of("characters"), "[0-9]{1,2}([-+][0-9]=[0-9]{1,2}){1,3}#(yes|no)"
    constraint = RegexConstraint(pattern=pattern).build(policy)
    for seed in range(30):
        tokens, ended = draw(constraint, policy, seed)
        assert ended
        assert re.fullmatch(pattern, policy.decode(tokens))


@pytest.mark.parametrize("pattern", ["漢+", "(漢|国)", "[漢国]"])
def test_an_expression_whose_characters_the_vocabulary_lacks_is_refused(pattern):
    with pytest.raises(RecipeError, match="no token of the model's vocabulary can follow"):
        RegexConstraint(pattern=pattern).build(policy_of("characters"))


def test_a_character_that_the_vocabulary_lacks_is_not_drawn_where_others_may_follow():
    policy = policy_of("characters")
    constraint = RegexConstraint(pattern="[1漢]{3}").build(policy)
    assert {policy.decode(draw(constraint, policy, seed)[0]) for seed in range(10)} == {"111"}


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "a" * 30_000])
def test_an_expression_that_cannot_be_used_is_refused(pattern):
    with pytest.raises(ValidationError, match="allowed"):
        RegexConstraint(pattern=pattern)
