"""Texts to predict token by token, between online steps."""

import pytest

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Origin, Task
from lyceum.papers.rmt.stages_mid_training import as_text
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def prompted(*tokens):
    return Tree(Task("t", ()), [Node.prompt(tokens)])


def test_every_token_of_a_prompt_is_predicted_from_those_before_it_and_nothing_ends_it():
    text = as_text(prompted(7, 8, 9, 5), 100)
    assert text.root.tokens == [7]
    (leaf,) = text.trajectories
    assert (leaf.tokens, leaf.origin, leaf.path_tokens()) == ([8, 9, 5], Origin.TEACHER, [7, 8, 9, 5])
    assert as_text(prompted(7, 8, 9, 5), 3).trajectories[0].path_tokens() == [7, 8, 9]
    assert as_text(prompted(7), 100) is None, "nothing predicts the first token"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["stages.0.next_tokens.objective=ppo-clip"], "next_tokens.objective.kind: got 'ppo-clip'.*allowed: sft"),
        (["stages.0.roles={models: [a, b], play: {x: b}}"], "stage 'mid-training', which trains one model"),
    ],
)
def test_what_texts_cannot_teach_is_refused(keys, line):
    with pytest.raises(RecipeError, match=line):
        load_recipe("rmt", keys)
