import sys
from pathlib import Path

from fake_task import roll as roll_task

from lyceum.core.types import Origin, Task
from lyceum.papers.rest_rl.curriculum_good_prefixes import GivenPrefix
from lyceum.papers.rest_rl.guidance_prefix import Prefix
from lyceum.rollout.flat import Flat

sys.path.insert(0, str(Path(__file__).parents[1] / "rollout"))
from tree_fakes import FakeTreeContext


def roll(task):
    context = FakeTreeContext(lambda text: text == "baa")
    guide = Prefix().build(None, seed=0)
    rollout = guide(Flat.model_validate({"samples": 2, "sampling": {"max_completion_tokens": 4}}).build())
    tree = roll_task(rollout, context, task)
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_completions_begin_with_what_is_given_and_it_is_graded_and_not_trained():
    tree, context, metrics = roll(Task("t", ()).with_note(GivenPrefix((2,))))  # "b"
    assert context.asked == [("b", 2, 4)]
    assert [leaf.completion for leaf in tree.trajectories] == ["baa", "bba"]
    assert [leaf.grade.outcome for leaf in tree.trajectories] == [1.0, 0.0]
    assert {node.origin for node in tree.root.children} == {Origin.PREFIX}
    assert tree.solved == 0.5
    assert tree.solved_unaided is None  # of what the policy does by itself it says nothing
    assert metrics == {"groups/prefix": 1, "tokens/given": 1, "correct/prefix": 0.5}


def test_other_tasks_are_rolled_out_as_they_are():
    tree, context, metrics = roll(Task("t", ()))
    assert context.asked == [("", 2, 4)]
    assert metrics == {"groups/prefix": 0}
    assert tree.solved_unaided == 0.5


def test_no_space_is_lost_behind_what_is_given():
    # Tokenizers of Llama's kind write a space before each word and none before the first of what they decode.
    class Words(FakeTreeContext):
        def decode(self, tokens):
            return " ".join(super(Words, self).decode([token]) for token in tokens if token)

    context = Words(lambda text: True, length=1000)
    flat = Flat.model_validate({"samples": 1, "sampling": {"max_completion_tokens": 3}})
    rollout = Prefix().build(None, seed=0)(flat.build())
    tree = roll_task(rollout, context, Task("t", ()).with_note(GivenPrefix((2,))))
    assert tree.trajectories[0].completion == "b a a a"
