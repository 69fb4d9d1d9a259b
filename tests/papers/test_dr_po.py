import sys
from collections import Counter
from pathlib import Path

import pytest
from fake_task import roll as roll_task

from lyceum.core.settings import Composition
from lyceum.core.types import Origin, Task
from lyceum.papers.dr_po.guidance_dataset_reset import DatasetReset, cuts
from lyceum.papers.rest_mcts.rollout_value_mcts import ValueMCTS
from lyceum.rollout.flat import Flat
from lyceum.utils.errors import RecipeError

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))
from tree_fakes import END, FakeTreeContext


class Context(FakeTreeContext):
    def encode(self, text):
        return [*(ord(letter) - 96 for letter in text), END]


def reset(n=6, *, text="bbb", context_length=1 << 30, **settings):
    context = Context(lambda text: text == "bbb")
    context.context_length = context_length
    guide = DatasetReset(**settings).build(None, seed=0)
    rollout = guide(Flat.model_validate({"samples": n, "sampling": {"max_completion_tokens": 4}}).build())
    tree = roll_task(rollout, context, Task("t", (), columns={"demonstration": text}), n)
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_every_rollout_begins_in_the_demonstration_and_its_beginning_is_graded_and_not_trained():
    tree, _, metrics = reset()
    given = tree.metadata["dataset-reset"].given
    assert len(tree.trajectories) == 6
    assert Counter(given) == Counter(len(leaf.parent.tokens) for leaf in tree.trajectories)
    for leaf in tree.trajectories:
        assert leaf.parent.origin is Origin.PREFIX
        assert leaf.completion.startswith("bbb"[: len(leaf.parent.tokens)])
        assert leaf.grade.outcome == (leaf.completion == "bbb")
    assert tree.solved_unaided is None  # of what the policy does by itself it says nothing
    assert metrics["rollouts/reset"] == 6
    assert metrics["tokens/given"] == sum(given) / 6


def test_rollouts_from_one_state_are_drawn_together():
    tree, context, _ = reset()
    assert len(context.asked) == len(set(tree.metadata["dataset-reset"].given))


def test_cuts_are_uniform_over_all_proper_beginnings():
    # Four tokens, the end of sequence among them: 1, 2 or 3 are given, a third each; catches 0 and the whole.
    drawn = Counter(cuts(4, 3000, 1.0, seed=0))
    assert set(drawn) == {1, 2, 3}
    assert all(abs(times - 1000) < 100 for times in drawn.values())


def test_a_share_of_the_rollouts_begins_at_the_prompt():
    drawn = cuts(4, 3000, 0.25, seed=0)
    assert abs(drawn.count(0) - 2250) < 100
    tree, _, metrics = reset(share=0)
    assert {leaf.parent for leaf in tree.trajectories} == {tree.root}
    assert (metrics["rollouts/reset"], metrics["groups/guided"]) == (0, 0)


def test_a_demonstration_of_one_token_has_no_state_to_begin_in():
    assert cuts(1, 4, 1.0, seed=0) == [0] * 4


def test_what_the_context_has_no_room_for_begins_at_the_prompt_and_is_counted():
    tree, _, metrics = reset(context_length=3)  # a prompt of one token, one of the demonstration, one to draw
    given = tree.metadata["dataset-reset"].given
    assert set(given) == {0, 1}
    assert metrics["too_long/resets"] == given.count(0)


def test_bad_input_is_refused():
    with pytest.raises(RecipeError, match="no column 'demonstration'"):
        DatasetReset().check_tasks([Task("t", ())])
    [line] = DatasetReset().conflicts(Composition(rollout=ValueMCTS()))
    assert line.startswith("rollout.kind: got 'value-mcts'")
    assert not DatasetReset().conflicts(Composition(rollout=Flat()))
    digits = {"kind": "regex", "pattern": "[0-9]*"}
    [line] = DatasetReset().conflicts(Composition(rollout=Flat.model_validate({"sampling": {"constraint": digits}})))
    assert line.startswith("rollout.sampling.constraint: got 'regex'")
